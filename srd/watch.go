package srd

import (
	"errors"
	"iter"

	"github.com/goverbs/goverbs/verbs"
)

// An endpoint outlives changes of its host. When an address goes and comes again, its GID
// has another place in the table of the port. When a link goes down and up, or a port gets
// another MAC, address handles lead nowhere. The device reports changes at this end; a
// handle that fails, and a peer that is silent, are signs of changes at either end.

// doubts has the GID looked up soon.
func (h *addressHandles) doubts() {
	select {
	case h.doubt <- struct{}{}:
	default:
	}
}

// follow drops all address handles whenever the endpoint's GID has moved or the host has
// changed otherwise.
func (h *addressHandles) follow(changes iter.Seq2[verbs.GIDEntry, error]) {
	for now, err := range changes {
		if err == nil || errors.Is(err, verbs.ErrNoGID) { // of a device that is gone, the endpoint hears otherwise
			h.changed(now, err != nil)
		}
	}
}

func (h *addressHandles) changed(now verbs.GIDEntry, gone bool) {
	ep := h.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.closed.Load() {
		return
	}
	switch {
	case gone && !h.gone:
		ep.logs.Warn("srd: the endpoint's address is gone", "gid", h.gid)
	case !gone && (h.gone || now != h.gid):
		ep.logs.Info("srd: the endpoint's address has moved", "from", h.gid, "to", now)
		h.gid = now
	}
	h.gone = gone
	h.DropAll()
	ep.polls.nudge() // queue pairs may be mended now
}
