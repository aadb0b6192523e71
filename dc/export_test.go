package dc

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// KeepFreely has an initiator keep sessions on any device, and go on with them whatever
// may be late.
func (i *Initiator) KeepFreely() {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.be.(*software).core
	c.Keep, c.TimeWait = true, 0
}

// Owns reports whether a live session of a target is the initiator's; known is
// false if the session is over.
func (i *Initiator) Owns(t *Target, session uint64) (owns, known bool) {
	of, atSoftware := t.be.(*softwareTarget)
	s, software := i.be.(*software)
	if !atSoftware || !software {
		return false, false
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	sender, known := of.core.Owner(session)
	return sender == s.core.ID, known
}

// Stall has a target read no control messages until release is called.
func (t *Target) Stall() (release func()) {
	c := t.be.(*softwareTarget).ctl
	c.reading.Lock()
	return c.reading.Unlock
}

// CountKeepAlives counts the keep-alives that come to a target from now on.
func (t *Target) CountKeepAlives() *atomic.Uint64 {
	var n atomic.Uint64
	c := t.be.(*softwareTarget).ctl
	c.routing.Lock()
	defer c.routing.Unlock()
	next := c.rest.received
	c.rest.received = func(m *wire.Message) {
		if m.Kind == wire.KeepAlive {
			n.Add(1)
		}
		next(m)
	}
	return &n
}

// CreateFrom has a target make queue pairs in another domain, and returns the one
// from before.
func (t *Target) CreateFrom(pd *verbs.PD) (before *verbs.PD) {
	s := t.be.(*softwareTarget)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, t.cfg.PD = t.cfg.PD, pd
	return before
}

// Responder is the queue pair of a responder context.
func (t *Target) Responder(slot int) *verbs.QP {
	s := t.be.(*softwareTarget)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responders[slot]
}

// Rerelease releases a responder context as if its initiator had detached, and makes it
// ready for a session of this number; what between does comes in the middle.
func (t *Target) Rerelease(slot int, between func(), next uint64) error {
	s := t.be.(*softwareTarget)
	s.mu.Lock()
	s.Release(slot, 0, true)
	r := s.resets[len(s.resets)-1]
	s.resets = s.resets[:len(s.resets)-1]
	s.mu.Unlock()
	between()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.resetOne(r); err != nil {
		return err
	}
	t.in.begin(s.responders[slot].Num(), origin{session: next})
	return nil
}

// BreakControl brings the control queue pair to error, as a device does that cannot
// send a datagram.
func (i *Initiator) BreakControl() error { return i.be.(*software).ctl.fail() }

// BreakControl is [Initiator.BreakControl] of a target.
func (t *Target) BreakControl() error { return t.be.(*softwareTarget).ctl.fail() }

func (c *Control) fail() error {
	c.mu.Lock() // not amid a restart
	defer c.mu.Unlock()
	return c.qp.ToError()
}

// HoldOverRestart has the target's control queue restart when a message that was sent has
// been polled and not handled yet, handles that then, and returns the number of receives
// posted for it.
func (t *Target) HoldOverRestart(send func()) (receives int, err error) {
	c := t.be.(*softwareTarget).ctl
	c.reading.Lock()
	defer c.reading.Unlock()
	c.watch.exclude()
	defer c.watch.admit()
	var wcs [1]verbs.WC
	send()
	for n := 0; n == 0 && err == nil; runtime.Gosched() {
		n, err = c.recvCQ.Poll(wcs[:])
	}
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	err = c.restart()
	c.mu.Unlock()
	c.take(wcs[:])
	return c.recv.Len(), err
}

// Lose has the initiator's completion queue lost.
func (i *Initiator) Lose(err error) { (&engine{i}).Lost(err) }

// DCI is the number of a DCI's queue pair.
func (i *Initiator) DCI(n int) uint32 { return i.be.(*hardware).dcis[n].qp.Num() }

// ContextQP is the number of an initiator context's queue pair.
func (i *Initiator) ContextQP(n int) uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.be.(*software).qps[n].qp.Num()
}

// PathMTU is that of an initiator context's queue pair, as the device has it.
func (i *Initiator) PathMTU(n int) (verbs.MTU, error) {
	i.mu.Lock()
	qp := i.be.(*software).qps[n].qp
	i.mu.Unlock()
	a, err := qp.Query()
	return a.PathMTU, err
}

// Serves is the peer that an initiator context serves, or nil.
func (i *Initiator) Serves(n int) *Peer {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.be.(*software).core.Contexts[n].Peer(); m != nil {
		return owner(m)
	}
	return nil
}

// Left is how many requests have not ended.
func (w Pending) Left() int {
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	return w.c.left
}

// performer is a back end with more to do.
type performer struct {
	backend
	i    *Initiator
	more func()
}

func (p *performer) busy() bool { return true }

func (p *performer) perform() {
	p.backend.perform()
	p.i.mu.Unlock()
	p.more()
	p.i.mu.Lock()
}

// OnPerform has a function called, without the initiator's lock, whenever the back end may do
// what takes time.
func (i *Initiator) OnPerform(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.be = &performer{i.be, i, f}
}
