package dc

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// pollSpin is [Initiator.PollSpin].
func (h *hardware) pollSpin(cs []Completion, spins int) (int, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return 0, opError("poll", "initiator", ErrClosed)
	}
	if n := copy(cs, h.done); n > 0 {
		h.done = append(h.done[:0], h.done[n:]...)
		h.mu.Unlock()
		return n, nil
	}
	n, err := h.cq.PollSpin(h.wcs[:min(len(cs), len(h.wcs))], spins)
	n = h.complete(h.wcs[:n], cs)
	h.perform()
	return n, err
}

// wait is [Initiator.Wait].
func (h *hardware) wait(ctx context.Context, cs []Completion) (int, error) {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, opError("wait for", "initiator", ctx.Err())
	}
	defer func() { <-h.turn }()
	for len(cs) > 0 {
		inner := h.park.begin(ctx)
		if n, err := h.pollSpin(cs, 0); n > 0 || err != nil {
			return n, err
		}
		n, err := h.park.wait(ctx, inner, h.parked[:min(len(cs), len(h.parked))])
		if err != nil && n == 0 {
			return 0, err
		}
		if n == 0 {
			continue
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return 0, opError("wait for", "initiator", ErrClosed)
		}
		n = h.complete(h.parked[:n], cs)
		h.perform()
		if n > 0 {
			return n, nil
		}
	}
	return 0, nil
}

// complete turns completions of the device into the caller's, and answers how
// many they are.
func (h *hardware) complete(wcs []verbs.WC, cs []Completion) int {
	n := 0
	for k := range wcs {
		w := &wcs[k]
		failed := w.Status() != verbs.WCSuccess
		r, _, ok := h.core.completed(w.ID(), failed)
		if !ok {
			h.cfg.Logger.Error("dc: completion of a request that is not under way", "id", w.ID())
			continue
		}
		p := r.peer.owner
		cs[n] = Completion{ID: r.id, Peer: p, Op: r.op}
		if failed {
			cs[n].Err = requestError(p, r.op, w)
		}
		n++
	}
	return n
}

// perform carries out what the state machine wants, and posts what waits. It is
// called with mu held and releases it. What takes time is done without the
// lock, but for the way to the error state: nobody may have seen the DCI empty,
// and begun to bring it back, before that.
func (h *hardware) perform() {
	for !h.closed {
		actions := h.core.actions
		h.core.actions = nil
		slow := actions[:0]
		for _, a := range actions {
			switch a.kind {
			case dciAbort:
				if err := h.dcis[a.dci.index].qp.ToError(); err != nil {
					h.cfg.Logger.Error("dc: abort DCI", "err", err)
				}
			case dciGiveUp:
				p := a.peer.owner
				x := h.all[p.number]
				h.fail(p, x.queue, opError("post to", p.addr.String(), a.err))
				x.queue = nil
			default:
				slow = append(slow, a)
			}
		}
		if len(slow) == 0 {
			break
		}
		h.acting.Add(1)
		h.mu.Unlock()
		for _, a := range slow {
			h.act(a)
		}
		h.mu.Lock()
		h.acting.Done()
	}
	if !h.closed {
		for k := range h.core.dcis {
			if d := &h.core.dcis[k]; len(d.waiting) > 0 {
				h.pump(d)
			}
		}
	}
	h.mu.Unlock()
}

// act does what takes time, and tells the state machine what came of it.
func (h *hardware) act(a dciAction) {
	qp := h.dcis[a.dci.index].qp
	switch a.kind {
	case dciCheck:
		attr, err := qp.Query()
		if err != nil {
			h.cfg.Logger.Error("dc: state of DCI", "err", err)
		}
		h.mu.Lock()
		h.core.checked(a, err != nil || attr.State != verbs.StateRTS)
		h.mu.Unlock()
	case dciResetStream:
		h.mu.Lock()
		useless := a.dci.state != dciReady // the whole DCI is going to be reset
		h.mu.Unlock()
		var err error
		if !useless {
			err = qp.ResetStream(1 + a.stream)
		}
		if err != nil {
			h.cfg.Logger.Warn("dc: reset of stream; the whole DCI is reset instead", "err", err)
		}
		h.mu.Lock()
		h.core.streamReset(a, err)
		h.mu.Unlock()
	case dciRecover:
		err := qp.ToReset()
		if err == nil {
			err = qp.Init()
		}
		if err == nil {
			err = qp.ActivateWith(h.connect())
		}
		if err != nil {
			h.cfg.Logger.Error("dc: DCI lost", "err", err)
		}
		h.mu.Lock()
		h.core.recovered(a.dci, err)
		h.mu.Unlock()
	}
}
