package srd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// handles are the address handles of peers, made when they are first needed, by a
// goroutine of their own, since the kernel may ask the network for a neighbour. While that
// does not answer, which takes a second, other goroutines make those that wait behind it.
// Those that lead nowhere are dropped, and those that may lead nowhere are renewed. The
// endpoint's lock guards them.
type handles struct {
	ep      *Endpoint
	of      map[way]*handle
	hosts   map[verbs.GID]int // handles of each
	asked   chan way
	making  int           // handles that are asked for
	helped  time.Duration // when one was made last, or others had goroutines of their own
	dropped []*handle     // to be closed, when no send uses them

	gid   verbs.GIDEntry // where the endpoint's GID was last
	gone  bool           // it is nowhere now
	life  uint32         // counts changes of that: handles of an earlier life lead nowhere
	doubt chan struct{}  // has a token when the GID is to be looked up
	moved bool           // the device said that something changed

	failed map[verbs.GID]error // why there was no way to these lately

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

	stale    bool // it may lead nowhere, and is to be made again
	renewing bool // which is under way; the old one is used meanwhile

	stranger bool // the first packet was for one
}

func newHandles(ep *Endpoint) handles {
	return handles{ep: ep, of: make(map[way]*handle), failed: make(map[verbs.GID]error), hosts: make(map[verbs.GID]int), asked: make(chan way, mostMaking), doubt: make(chan struct{}, 1)}
}

// share returns how many ways to each host there are at most: as many as have handles for all
// hosts at once.
func (h *handles) share() int { return max(1, mostHandles/max(1, len(h.hosts))) }

const (
	mostHandles = 1 << 14
	mostMaking  = 32 // at once
	mostFailed  = 1024
	forSomeone  = 4 // of them, when the packet is for a stranger: anybody may name an address at which nobody is

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
		h.hosts[to.to]++
		h.ask(to)
	}
	a.dirty = true
	switch {
	case a.ah == nil:
		h.help()
		return nil, true
	case a.renewing:
		h.help()
	case a.stale && h.making < forSomeone:
		a.renewing = true
		h.ask(to)
	case !a.stale:
		h.latest, h.found = to, a
	}
	return a, false
}

// ask has a handle made.
func (h *handles) ask(to way) {
	if h.making++; h.making == 1 {
		h.helped = h.ep.now()
	}
	h.asked <- to // has room
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
			h.drop(gid, a)
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
	ep.mu.Lock()
	ah, err := h.create(to)
	h.making--
	h.helped = ep.now()
	a := h.of[to]
	h.note(to.to, err)
	switch {
	case a == nil: // it was dropped while it was renewed
		h.dropped = append(h.dropped, &handle{ah: ah})
	case a.ah != nil && err != nil: // the old one may be as good
		a.stale, a.renewing = false, false
	case a.ah != nil:
		h.dropped = append(h.dropped, a)
		h.of[to], h.found = &handle{ah: ah, dirty: true}, nil
	case err != nil:
		h.forget(to) // asked for again by the next packet
	default:
		a.ah = ah
	}
	unused := h.unused()
	switch {
	case ep.closed.Load(): // no others are made
	case err != nil:
		h.doubts()
		ep.driver.lost(to)
		ep.pump()
		level := slog.LevelWarn
		if a != nil && a.stranger {
			level = slog.LevelDebug
		}
		ep.logs.log(level, "srd: no way to peer", "gid", to.to.Addr(), "err", err)
	default:
		ep.driver.resume()
		ep.pump()
	}
	ep.mu.Unlock()
	for _, a := range unused {
		if err := a.close(); err != nil {
			ep.logs.log(slog.LevelWarn, "srd: address handle", "err", err)
		}
	}
}

// note keeps why there is no way to a port, and forgets it when there is one.
func (h *handles) note(to verbs.GID, err error) {
	if err == nil {
		delete(h.failed, to)
		return
	}
	if len(h.failed) >= mostFailed {
		clear(h.failed)
	}
	h.failed[to] = err
}

// create creates an address handle from where the endpoint's GID is, and again if that
// changes meanwhile. It is called with the lock held, and lets go of it.
func (h *handles) create(to way) (ah *verbs.AH, err error) {
	ep := h.ep
	for {
		from, life := h.gid, h.life
		if h.gone {
			return nil, fmt.Errorf("%w: the address %v is gone", verbs.ErrNoGID, from.GID.Addr())
		}
		ep.mu.Unlock()
		ah, err = ep.cfg.PD.CreateAH(verbs.AHAttr{GID: to.to, FlowLabel: to.label, SGIDIndex: from.Index, Port: from.Port})
		ep.mu.Lock()
		if life == h.life || ep.closed.Load() {
			return ah, err
		}
		h.dropped = append(h.dropped, &handle{ah: ah})
	}
}

// drop forgets a handle, and has it closed when no send uses it.
func (h *handles) drop(to way, a *handle) {
	if a.ah == nil { // make sees to it
		return
	}
	h.forget(to)
	h.dropped = append(h.dropped, a)
}

// forget takes a handle out.
func (h *handles) forget(to way) {
	h.found = nil
	delete(h.of, to)
	if h.hosts[to.to]--; h.hosts[to.to] == 0 {
		delete(h.hosts, to.to)
	}
}

// dropAll drops all handles: the host has changed.
func (h *handles) dropAll() {
	h.life++
	for to, a := range h.of {
		h.drop(to, a)
	}
}

// renew has a handle made again when it is used next.
func (h *handles) renew(to way) {
	if a := h.of[to]; a != nil {
		a.stale, h.found = true, nil
	}
}

// unused takes out the handles that were dropped and are not in use.
func (h *handles) unused() (out []*handle) {
	h.dropped = slices.DeleteFunc(h.dropped, func(a *handle) bool {
		if a.uses > 0 {
			return false
		}
		out = append(out, a)
		return true
	})
	return out
}

func (a *handle) close() error {
	if a.ah == nil {
		return nil
	}
	return a.ah.Close()
}

func (h *handles) close() []error {
	var errs []error
	for _, a := range h.of {
		errs = append(errs, a.close())
	}
	for _, a := range h.dropped {
		errs = append(errs, a.close())
	}
	return errs
}
