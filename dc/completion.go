package dc

import (
	"context"
	"errors"
	"fmt"
	"runtime"

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

// PostPoll is Post and then PollSpin, in one crossing into C if the target is
// attached and has room (with hardware it is two): the fastest way to do one
// operation and wait for it. It answers how many requests were taken and how
// many have ended, and may well find none.
func (i *Initiator) PostPoll(p *Peer, cs []Completion, spins int, rs ...Request) (posted, polled int, err error) {
	if err := p.check(&i.cfg, rs); err != nil {
		return 0, 0, err
	}
	if i.hw != nil {
		if posted, err = i.hw.post(p, rs); err == nil {
			polled, err = i.hw.pollSpin(cs, spins)
		}
		return posted, polled, err
	}
	i.mu.Lock()
	x := i.core.admit(p)
	if i.closed || x == nil || len(i.done) > 0 || len(i.lanes[x.index].ring)-i.lanes[x.index].n < len(rs) {
		i.mu.Unlock()
		if posted, err = i.Post(p, rs...); err == nil {
			polled, err = i.PollSpin(cs, spins)
		}
		return posted, polled, err
	}
	l := &i.lanes[x.index]
	packets := l.add(x, rs)
	posted, polled, err = l.batch.PostPoll(i.cq, i.wcs[:min(len(cs), len(i.wcs))], spins)
	i.posted(x, l, rs, posted, packets)
	i.core.stats.Hits += uint64(posted)
	if polled > 0 {
		i.complete(i.wcs[:polled], cs)
	}
	i.perform()
	return posted, polled, err
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
	for k := range wcs {
		w := &wcs[k]
		l := &i.lanes[w.ID()]
		x := &i.core.contexts[w.ID()]
		r := l.ring[l.head]
		if l.head++; l.head == len(l.ring) {
			l.head = 0
		}
		l.n--
		p := x.peer
		cs[k] = Completion{ID: r.id, Peer: p, Op: r.op}
		failed := w.Status() != verbs.WCSuccess
		if failed {
			cs[k].Err = requestError(p, r.op, w)
		}
		if i.core.completed(x, 1, failed) {
			i.core.settle(x, i.now())
		}
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
	joins := len(i.joins)
	i.perform()
	if joins > 0 {
		runtime.Gosched() // who waits for a session goes first
	}
}

func (i *Initiator) tick() {
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return
	}
	i.alarm.rung()
	i.core.tick(i.now())
	i.perform()
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
	s.Parked = i.core.parked
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
	for p := range i.joins {
		i.attached(p, opError("connect to", p.addr.String(), ErrClosed))
	}
	i.mu.Unlock()
	i.alarm.stop()
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
			i.core.farewell(x.peer, &x.session, broken, 0)
		}
	}
	for _, p := range i.core.peers {
		if p != nil && p.parked.id != 0 {
			i.core.farewell(p, &p.parked, noReason, 0)
		}
	}
	for k := range i.core.actions {
		if a := &i.core.actions[k]; a.kind == actSend {
			i.later(a)
		}
	}
}
