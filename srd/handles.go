package srd

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// handles are the address handles of peers, made when they are first needed, by a
// goroutine of their own, since the kernel may ask the network for a neighbour. The
// endpoint's lock guards them.
type handles struct {
	ep    *Endpoint
	of    map[way]*handle
	asked chan way
	retry []*verbs.AH // that were in use when they were to be closed

	// The last one that get found: packets of a stream all take it, and the map's hash is a
	// good part of what such a packet costs.
	latest way
	found  *handle // nil: none
}

// way is one to a port, for all endpoints there. Most devices choose the UDP source port,
// and routers the path by that, by the flow label of an address handle (label is not 0);
// Soft-RoCE does so by the queue pair, and EFA by itself.
type way struct {
	to    verbs.GID
	label uint32
}

// handle is an address handle, and what of it is in use.
type handle struct {
	ah    *verbs.AH // nil: being made
	uses  int       // sends that have not completed
	dirty bool      // used since the last search for one to close
}

const mostHandles = 1 << 14

// get answers a handle, or nil if there is none yet.
func (h *handles) get(to way) *handle {
	if h.found != nil && h.latest == to {
		h.found.dirty = true
		return h.found
	}
	a := h.of[to]
	if a == nil {
		if len(h.of) >= mostHandles && !h.evict() {
			return nil
		}
		a = new(handle)
		select {
		case h.asked <- to:
			h.of[to] = a
		default: // too many strangers at once
			return nil
		}
	}
	a.dirty = true
	if a.ah == nil {
		return nil
	}
	h.latest, h.found = to, a
	return a
}

// evict forgets a handle that nobody used lately.
func (h *handles) evict() bool {
	for range 2 {
		for gid, a := range h.of {
			if a.ah == nil || a.uses > 0 {
				continue
			}
			if a.dirty {
				a.dirty = false
				continue
			}
			h.found = nil
			delete(h.of, gid)
			h.retry = append(h.retry, a.ah)
			return true
		}
	}
	return false
}

// resolve makes handles until ctx ends.
func (h *handles) resolve(ctx context.Context) {
	ep := h.ep
	defer ep.served.Done()
	for {
		var to way
		select {
		case <-ctx.Done():
			return
		case to = <-h.asked:
		}
		ah, err := ep.cfg.PD.CreateAH(verbs.AHAttr{GID: to.to, FlowLabel: to.label, SGIDIndex: ep.gid.Index, Port: ep.gid.Port})
		ep.mu.Lock()
		old := h.retry
		h.retry = nil
		if err != nil {
			delete(h.of, to) // asked for again by the next packet
			ep.driver.lost(to)
			ep.pump()
			ep.log.Warn("srd: no way to peer", "gid", to.to, "err", err)
		} else {
			h.of[to].ah = ah
			ep.driver.resume()
			ep.pump()
		}
		ep.mu.Unlock()
		for _, a := range old {
			if err := a.Close(); err != nil {
				ep.log.Warn("srd: address handle", "err", err)
			}
		}
	}
}

func (h *handles) close() []error {
	var errs []error
	for _, a := range h.of {
		if a.ah != nil {
			errs = append(errs, a.ah.Close())
		}
	}
	for _, a := range h.retry {
		errs = append(errs, a.Close())
	}
	return errs
}
