package lockoffload

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// What the ids of an agent's work requests mean, in their highest byte. The
// rest is the job, or peer 24 bits and connection 32 bits.
const (
	workReceive = 1 << 56
	workLock    = 2 << 56
	workReply   = 3 << 56
	workTurn    = 4 << 56
	workMask    = 0xff << 56
)

// serve takes completions until the context ends.
func (a *Agent) serve(ctx context.Context) {
	var wcs [64]verbs.WC
	for keeps := false; ; {
		var n int
		var err error
		if keeps {
			n, err = a.cq.Poll(wcs[:])
		} else {
			n, err = a.cq.Wait(ctx, wcs[:])
		}
		a.mu.Lock()
		for i := range wcs[:n] {
			a.completed(&wcs[i])
		}
		if err != nil {
			a.fail(err)
		}
		a.turn()
		failed, idle := a.failed, a.under == 0
		if keeps = idle && a.core.Keeps(); keeps {
			a.core.Pause()
		}
		a.mu.Unlock()
		if failed != nil {
			return
		}
		if idle {
			// The next event is a request of a client, perhaps one in this process, which
			// may run before this goroutine polls. If no request comes, locks that were
			// kept for it are given back.
			runtime.Gosched()
		}
	}
}

// fail stops the agent: lock operations have an unknown outcome. Its clients notice
// when their queue pairs fail. mu must be held.
func (a *Agent) fail(err error) {
	if a.failed != nil {
		return
	}
	a.failed = err
	close(a.over)
	for peer := range a.links {
		a.unlink(int32(peer))
	}
	if !errors.Is(err, context.Canceled) {
		a.cfg.Logger.Error("lockoffload: agent stopped", "err", err)
	}
}

func (a *Agent) now() time.Duration { return time.Since(a.start) }

// alarm runs a turn when the timer fires.
func (a *Agent) alarm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rings = machine.Never
	a.turn()
}

func (a *Agent) completed(wc *verbs.WC) {
	id := wc.ID()
	switch id & workMask {
	case workReceive:
		j := int32(id &^ workMask)
		peer, known := a.byQP[wc.QPNum()]
		switch {
		case wc.Status() != verbs.WCSuccess:
			a.core.Free = append(a.core.Free, j)
		case !known: // of a queue pair that is attached no more
			a.core.Stats.Malformed++
			a.core.Free = append(a.core.Free, j)
		default:
			at := int(j) * a.core.Limits.Message
			a.core.Submit(a.now(), j, peer, a.mr.Bytes()[at:at+wc.Len()])
		}
	case workLock:
		if err := wc.Err(); err != nil {
			a.fail(err)
			return
		}
		a.under--
		j := int(id &^ workMask)
		at := a.at.results + j*a.words*8
		for i := range a.res {
			a.res[i] = verbs.Uint64(a.mr.Bytes(), at+8*i)
		}
		a.core.Result(a.now(), int32(j), a.res)
	case workTurn:
		if err := wc.Err(); err != nil {
			a.fail(err)
			return
		}
		a.under--
		list := int(id &^ workMask)
		var old [machine.TurnWords]uint64
		for i := range old {
			old[i] = verbs.Uint64(a.mr.Bytes(), a.at.turns+(machine.TurnWords*list+i)*8)
		}
		a.core.TurnResult(a.now(), list, old[:])
	case workReply:
		// A failed reply means that the connection failed; its client connects again.
		a.core.Sent(int32(id>>32&0xffffff), uint32(id))
	}
}

// turn posts what the core wants posted, with at most one crossing for all lock
// operations, one for all receives and one for each client's replies. Replies go
// first: a client waits for them, but perhaps none for an unlock command. mu must be
// held.
func (a *Agent) turn() {
	c := a.core
	if a.failed != nil || a.closed {
		return
	}
	c.Turn(a.now())
	a.postReplies()
	a.postLocks()
	for _, j := range c.Free {
		a.receive(j)
	}
	c.Free = c.Free[:0]
	if a.recvs.Len() > 0 {
		if _, err := a.recvs.Post(); err != nil {
			a.fail(err)
		}
	}
	if at := c.Rings(); at < a.rings {
		a.rings = at
		a.timer.Reset(max(at-a.now(), 0))
	}
	if a.settling && !a.settled && c.Taken+c.Unlocking == 0 && c.Broker.Idle() {
		a.settled = true
		close(a.quiet)
	}
}

func (a *Agent) receive(j int32) {
	n := a.core.Limits.Message
	a.recvs.Recv(workReceive|uint64(j), a.mr.SGE(int(j)*n, n))
}

func (a *Agent) postLocks() {
	c := a.core
	if len(c.Ops)+len(c.Broker.Lists) == 0 {
		return
	}
	region := a.cfg.Region.Remote()
	for i := range c.Ops {
		o, flags := &c.Ops[i], verbs.SendFlags(0)
		if o.Last {
			flags = verbs.Signaled
			a.under++
		}
		id, at := workLock|uint64(o.Job), region.At(uint64(o.Off))
		result := a.mr.SGE(a.at.results+int(o.Job)*a.words*8+o.At, o.N)
		switch o.Kind {
		case machine.OpCmpSwap:
			a.batch.CmpSwap(id, flags, at, o.A, o.B, result)
		case machine.OpRead:
			a.batch.Read(id, flags, at, result)
		}
	}
	c.Ops = c.Ops[:0]
	for _, l := range c.Broker.Lists {
		at := region.At(uint64(c.Slots.LockOff(int(l.Slot))))
		for i, o := range l.Ops[:l.N] {
			flags := verbs.SendFlags(0)
			if i == l.N-1 {
				flags = verbs.Signaled
				a.under++
			}
			a.batch.CmpSwap(workTurn|uint64(l.Index), flags, at, o.Compare, o.Swap, a.mr.SGE(a.at.turns+(machine.TurnWords*l.Index+i)*8, 8))
		}
	}
	c.Broker.Lists = c.Broker.Lists[:0]
	if _, err := a.batch.Post(); err != nil {
		a.fail(err)
	}
}

func (a *Agent) postReplies() {
	c := a.core
	for _, o := range c.Outs {
		l := &a.links[o.Peer]
		if l.qp == nil {
			c.Stats.Unsent++
			continue
		}
		id := workReply | uint64(o.Peer)<<32 | uint64(l.conn)
		l.batch.Send(id, verbs.Signaled, a.mr.SGE(a.at.replies+c.ReplyAt(o.Peer, o.Entry), o.N))
		l.added++
	}
	for _, o := range c.Outs {
		l := &a.links[o.Peer]
		if l.added == 0 {
			continue
		}
		n, err := l.batch.Post()
		if err != nil {
			a.cfg.Logger.Debug("lockoffload: reply not sent", "qp", l.qp.Num(), "err", err)
		}
		for range l.added - n {
			c.Stats.Unsent++
			c.Sent(o.Peer, l.conn)
		}
		l.added = 0
	}
	c.Outs = c.Outs[:0]
}
