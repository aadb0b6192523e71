package srd

import (
	"context"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// handles are the address handles of peers, made when they are first needed, by a
// goroutine of their own, since the kernel may ask the network for a neighbour. While that
// does not answer, which takes a second, other goroutines make those that wait behind it. The
// endpoint's lock guards them.
type handles struct {
	ep     *Endpoint
	of     map[way]*handle
	asked  chan way
	making int           // handles that are asked for
	helped time.Duration // when one was made last, or others had goroutines of their own
	retry  []*verbs.AH   // that were in use when they were to be closed

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

	stranger bool // the first packet was for one
}

const (
	mostHandles = 1 << 14
	mostMaking  = 32 // at once
	forSomeone  = 4  // of them, when the packet is for a stranger: anybody may name an address at which nobody is

	helpAfter = 50 * time.Millisecond // that none was made, those that wait have goroutines of their own
)

// get answers a handle, or nil if there is none yet, and whether it is being made then.
func (h *handles) get(to way, stranger bool) (a *handle, coming bool) {
	if h.found != nil && h.latest == to {
		h.found.dirty = true
		return h.found, false
	}
	a = h.of[to]
	if a == nil {
		if h.making >= mostMaking || stranger && h.making >= forSomeone || len(h.of) >= mostHandles && !h.evict() {
			return nil, false
		}
		a = &handle{stranger: stranger}
		h.of[to] = a
		if h.making++; h.making == 1 {
			h.helped = h.ep.now()
		}
		h.asked <- to // has room
	}
	a.dirty = true
	if a.ah == nil {
		h.help()
		return nil, true
	}
	h.latest, h.found = to, a
	return a, false
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
	defer h.ep.served.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case to := <-h.asked:
			h.make(to)
		}
	}
}

// help has what waits behind handles that take long made by other goroutines.
func (h *handles) help() {
	now := h.ep.now()
	if now-h.helped < helpAfter {
		return
	}
	h.helped = now
	for {
		select {
		case to := <-h.asked:
			h.ep.served.Go(func() { h.make(to) })
		default: // resolve takes of them, too
			return
		}
	}
}

// make makes a handle, and has what waits for it go on.
func (h *handles) make(to way) {
	ep := h.ep
	ah, err := ep.cfg.PD.CreateAH(verbs.AHAttr{GID: to.to, FlowLabel: to.label, SGIDIndex: ep.gid.Index, Port: ep.gid.Port})
	ep.mu.Lock()
	old := h.retry
	h.retry = nil
	h.making--
	h.helped = ep.now()
	a := h.of[to]
	if err != nil {
		delete(h.of, to) // asked for again by the next packet
	} else {
		a.ah = ah
	}
	switch {
	case ep.closed.Load(): // no others are made
	case err != nil:
		ep.driver.lost(to)
		ep.pump()
		level := slog.LevelWarn
		if a.stranger {
			level = slog.LevelDebug
		}
		ep.log.Log(context.Background(), level, "srd: no way to peer", "gid", to.to, "err", err)
	default:
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
