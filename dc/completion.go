package dc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Poll takes requests that have ended, at most len(cs), and answers how many.
// It never blocks, and does not allocate as long as nothing fails and no
// session begins or ends. Those of one target come in the order of posting;
// behind one that failed, those that were posted under the same session fail
// too.
func (i *Initiator) Poll(cs []Completion) (int, error) { return i.PollSpin(cs, 0) }

// PollSpin is Poll repeated up to spins times in one crossing into C while
// there is nothing, like [verbs.CQ.PollSpin].
func (i *Initiator) PollSpin(cs []Completion, spins int) (int, error) {
	if i.hw != nil {
		return i.hw.pollSpin(cs, spins)
	}
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return 0, opError("poll", "initiator", ErrClosed)
	}
	if n := i.takeDone(cs); n > 0 {
		i.mu.Unlock()
		return n, nil
	}
	n, err := i.cq.PollSpin(i.wcs[:min(len(cs), len(i.wcs))], spins)
	if n > 0 {
		i.complete(i.wcs[:n], cs)
	}
	i.perform()
	return n, err
}

func (i *Initiator) takeDone(cs []Completion) int {
	n := copy(cs, i.done)
	if n > 0 {
		i.done = append(i.done[:0], i.done[n:]...)
	}
	return n
}

// complete turns completions of the device into the caller's.
func (i *Initiator) complete(wcs []verbs.WC, cs []Completion) {
	now := i.now()
	for k := range wcs {
		w := &wcs[k]
		l := &i.lanes[w.ID()]
		x := &i.core.contexts[w.ID()]
		r := l.ring[l.head]
		if l.head++; l.head == len(l.ring) {
			l.head = 0
		}
		l.n--
		p := i.peers[x.peer.number]
		cs[k] = Completion{ID: r.id, Peer: p, Op: r.op}
		failed := w.Status() != verbs.WCSuccess
		if failed {
			cs[k].Err = requestError(p, r.op, w)
		}
		i.core.completed(x, 1, failed, now)
		if x.state == ctxAttached && x.peer.pending > 0 {
			i.postPending(x)
		}
	}
}

// requestError tells apart what the request itself was refused for, and what
// befell its session.
func requestError(p *Peer, op Op, w *verbs.WC) error {
	err := w.Err()
	switch w.Status() {
	case verbs.WCFlushed, verbs.WCRetryExceeded, verbs.WCRemoteAborted, verbs.WCFatal, verbs.WCGeneral, verbs.WCResponseTimeout:
		err = fmt.Errorf("%w: %w", ErrSession, err)
	}
	return opError(op.String()+" to", p.addr.String(), err)
}

// Wait is Poll until there is something. It parks the goroutine, and ends early
// with the context's error or with [ErrClosed]. Repeated calls with one context
// do not allocate.
func (i *Initiator) Wait(ctx context.Context, cs []Completion) (int, error) {
	if i.hw != nil {
		return i.hw.wait(ctx, cs)
	}
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, opError("wait for", "initiator", ctx.Err())
	}
	defer func() { <-i.turn }()
	for len(cs) > 0 {
		inner := i.park.begin(ctx)
		if n, err := i.Poll(cs); n > 0 || err != nil {
			return n, err
		}
		n, err := i.park.wait(ctx, inner, i.parked[:min(len(cs), len(i.parked))])
		if err != nil && n == 0 {
			return 0, err
		}
		if n > 0 {
			i.mu.Lock()
			if i.closed {
				i.mu.Unlock()
				return 0, opError("wait for", "initiator", ErrClosed)
			}
			i.complete(i.parked[:n], cs)
			i.perform()
			return n, nil
		}
	}
	return 0, nil
}

func (i *Initiator) received(m *message) {
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return
	}
	i.core.received(m, i.now())
	i.perform()
}

func (i *Initiator) timers(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		i.mu.Lock()
		next := i.core.next()
		i.mu.Unlock()
		timer.Reset(max(next-i.now(), time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-i.kick:
			continue
		case <-timer.C:
		}
		i.mu.Lock()
		i.core.tick(i.now())
		i.perform()
	}
}

// Stats are the counters so far.
func (i *Initiator) Stats() Stats {
	if i.hw != nil {
		return i.hw.stats()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.core.stats
	s.Rubbish += i.ctl.rubbish.Load()
	for k := range i.core.contexts {
		switch i.core.contexts[k].state {
		case ctxAttached, ctxDraining, ctxAborting:
			s.Live++
		}
	}
	return s
}

// Close ends all sessions. Requests that have not completed get no completion,
// and their memory is the caller's again. Closing twice is not an error.
func (i *Initiator) Close() error {
	if i.hw != nil {
		return i.hw.close()
	}
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return nil
	}
	i.closed = true
	i.mu.Unlock()
	i.stop()
	i.acting.Wait()
	i.work.Wait()
	i.park.wake()
	i.goodbye()
	var errs []error
	for _, l := range i.lanes {
		errs = append(errs, l.qp.Close())
	}
	if i.cq != nil {
		errs = append(errs, i.cq.Close())
	}
	if i.ctl != nil {
		errs = append(errs, i.ctl.close())
	}
	return errors.Join(errs...)
}

// goodbye tells targets that their sessions are over. It is sent once: if it
// is lost, the lease does the rest.
func (i *Initiator) goodbye() {
	for k := range i.core.contexts {
		x := &i.core.contexts[k]
		switch x.state {
		case ctxAttached, ctxDraining, ctxAborting, ctxJoining:
			m := message{kind: msgDetach, reason: broken, sender: i.core.id, session: x.session, context: uint32(x.index), attempt: x.attempt, peer: x.peer.number, epoch: x.peer.epoch, from: i.self, mtu: i.ctl.mtu}
			i.ctl.send(x.peer.to, &m)
		}
	}
}
