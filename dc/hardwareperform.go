package dc

import (
	"errors"

	"github.com/goverbs/goverbs/dc/internal/dci"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

func (h *hardware) busy() bool { return len(h.core.Actions) > 0 || h.core.Waiting() }

// urgent carries out what must come before the lock is released: no goroutine may
// see a DCI empty, and begin to bring it back, before it was brought to error; nor
// take back requests that the machine has given up, or forget their peer.
func (h *hardware) urgent() {
	rest := h.core.Actions[:0]
	for _, a := range h.core.Actions {
		switch a.Kind {
		case dci.Abort:
			if err := h.dcis[a.DCI.Index].qp.ToError(); err != nil {
				h.i.cfg.Logger.Error("dc: abort DCI", "err", err)
			}
		case dci.GiveUp:
			p := a.Peer.Owner.(*hardPeer).owner
			h.i.failQueue(p, opError("post to", p.addr.String(), errors.Join(dci.ErrLost, a.Err)))
		default:
			rest = append(rest, a)
		}
	}
	h.core.Actions = rest
}

// perform carries out what the machine wants, and posts what waits. What takes time
// is done without the lock.
func (h *hardware) perform() {
	i := h.i
	h.acting.Add(1)
	defer h.acting.Done()
	for i.open() {
		h.urgent()
		slow := h.core.Actions
		h.core.Actions = nil
		if len(slow) == 0 {
			h.pump()
			if len(h.core.Actions) == 0 {
				return
			}
			continue
		}
		i.mu.Unlock()
		for _, a := range slow {
			h.act(a)
		}
		i.mu.Lock()
	}
}

// act does what takes time, and passes the result to the machine. mu must not be held.
func (h *hardware) act(a dci.Action) {
	i := h.i
	qp := h.dcis[a.DCI.Index].qp
	switch a.Kind {
	case dci.Check:
		attr, err := qp.Query()
		if err != nil {
			i.cfg.Logger.Error("dc: state of DCI", "err", err)
		}
		h.step(func() { h.core.Checked(a, err != nil || attr.State != verbs.StateRTS) })
	case dci.ResetStream:
		i.mu.Lock()
		useless := !a.DCI.Ready() // the whole DCI is going to be reset
		i.mu.Unlock()
		var err error
		if !useless {
			err = qp.ResetStream(1 + a.Stream)
		}
		if err != nil {
			i.cfg.Logger.Warn("dc: reset of stream; the whole DCI is reset instead", "err", err)
		}
		h.step(func() { h.core.StreamReset(a, err) })
	case dci.Recover:
		err := qp.ToReset()
		if err == nil {
			err = qp.Init()
		}
		if err == nil {
			err = driver.ActivateWith(qp, h.connect())
		}
		if err != nil {
			i.cfg.Logger.Error("dc: DCI lost", "err", err)
		}
		h.step(func() { h.core.Recovered(a.DCI, err) })
	}
}

// step passes something to the machine.
func (h *hardware) step(f func()) {
	h.i.mu.Lock()
	defer h.i.mu.Unlock()
	f()
	h.urgent()
}
