// Package handles is the cache of an endpoint's address handles: which of them are made, which
// are used while they are made again, which make room for others, and which packets wait. Like
// the machines, it has no I/O, clock, goroutine or lock.
//
// The driver makes handles, one after the other, since the kernel may ask the network for a
// neighbour. While no reply comes, which takes a second, others are made beside it.
package handles

import (
	"slices"
	"time"
)

// GID names a port.
type GID = [16]byte

// Way is a way to a port, for all endpoints there. Most devices choose the UDP source port,
// by which routers choose the path, by the flow label of an address handle (Label is not 0);
// Soft-RoCE chooses it by the queue pair, and EFA chooses paths by itself.
type Way struct {
	To    GID
	Label uint32
}

// Handle is an address handle, and how many sends use it.
type Handle[A any] struct {
	AH   A
	Uses int // sends that have not completed

	since           time.Duration // when it was made
	made            bool
	dirty           bool // used since the last search for one to drop
	stale           bool // it may lead nowhere, and is to be made again
	renewing        bool // which is under way; the old one is used meanwhile
	unauthenticated bool // the first packet was for one
}

// Cache has the handles of an endpoint. Now, Ask and Parked have to be set.
type Cache[A any] struct {
	Now    func() time.Duration
	Ask    func(Way) // has a handle made, and does not block; at most MaxMaking at once
	Help   func()    // if not nil, has what was asked for made beside what takes long
	Parked int       // packets that may wait for handles
	Labels []uint32  // of the paths

	of      map[Way]*Handle[A]
	hosts   map[GID]int   // handles of each
	making  int           // handles that are asked for
	helped  time.Duration // when one was made last, or others were made beside it
	dropped []*Handle[A]  // to be closed, when no send uses them
	parked  []uint32
	life    uint32 // counts changes of the host: handles of an earlier life lead nowhere

	// The last ones that get found: packets to a peer take them in turn, and the map's hash is a
	// good part of what a packet costs.
	latest [latestFound]found[A]
}

// found is a handle that get found; nil: none.
type found[A any] struct {
	to Way
	h  *Handle[A]
}

// latestFound is the number of places in latest. Flow labels of the paths of an endpoint, which follow each other by an
// odd distance, have different places.
const latestFound = 16

const (
	MaxHandles               = 1 << 14
	MaxMaking                = 32 // at once
	maxUnauthenticatedMaking = 4  // of them: an unauthenticated peer may name an address that does not exist

	maxUnauthenticatedParked = 16 // others are asked again when they greet again

	// An unauthenticated peer may be the successor of an endpoint to which there is a handle, on another NIC:
	// a handle older than unauthenticatedAge is made again.
	unauthenticatedAge = time.Second

	helpAfter = 50 * time.Millisecond // without a handle made, Help is called
)

// Share returns the largest number of ways to a host, such that all hosts have handles at once.
func (c *Cache[A]) Share() int { return max(1, MaxHandles/max(1, len(c.hosts))) }

// Way returns the way to a port by a path. With very many hosts several paths have one.
func (c *Cache[A]) Way(to GID, path int) Way { return Way{to, c.Labels[path%c.Share()]} }

// Take returns the handle for packet i, which counts as a use of it. If there is none yet, the
// packet waits until Resume or Lost returns it; waits is false if too many wait already.
func (c *Cache[A]) Take(i uint32, to Way, unauthenticated bool) (h *Handle[A], waits bool) {
	h, coming := c.get(to, unauthenticated)
	switch {
	case h != nil:
		h.Uses++
	case len(c.parked) < c.Parked && (!unauthenticated || coming && len(c.parked) < maxUnauthenticatedParked):
		c.parked = append(c.parked, i)
		return nil, true
	}
	return h, false
}

// get returns a handle, or nil if there is none yet, and reports whether it is being made then.
func (c *Cache[A]) get(to Way, unauthenticated bool) (h *Handle[A], coming bool) {
	last := &c.latest[to.Label%latestFound]
	if last.h != nil && last.to == to && !unauthenticated {
		last.h.dirty = true
		return last.h, false
	}
	h = c.of[to]
	if h == nil {
		if c.making >= MaxMaking || unauthenticated && c.making >= maxUnauthenticatedMaking || len(c.of) >= MaxHandles && !c.evict() {
			return nil, false
		}
		if c.of == nil {
			c.of, c.hosts = make(map[Way]*Handle[A]), make(map[GID]int)
		}
		h = &Handle[A]{unauthenticated: unauthenticated}
		c.of[to] = h
		c.hosts[to.To]++
		c.ask(to)
	}
	h.dirty = true
	if unauthenticated && h.made && c.Now()-h.since >= unauthenticatedAge {
		h.stale, last.h = true, nil
	}
	switch {
	case !h.made:
		c.help()
		return nil, true
	case h.renewing:
		c.help()
	case h.stale && c.making < maxUnauthenticatedMaking:
		h.renewing = true
		c.ask(to)
	case !h.stale:
		*last = found[A]{to, h}
	}
	return h, false
}

func (c *Cache[A]) ask(to Way) {
	if c.making++; c.making == 1 {
		c.helped = c.Now()
	}
	c.Ask(to)
}

// help calls Help if no handle was made for helpAfter.
func (c *Cache[A]) help() {
	if c.Help == nil {
		return
	}
	if now := c.Now(); now-c.helped >= helpAfter {
		c.helped = now
		c.Help()
	}
}

// evict drops a handle that was not used lately.
func (c *Cache[A]) evict() bool {
	for range 2 {
		for to, h := range c.of {
			if !h.made || h.Uses > 0 {
				continue
			}
			if h.dirty {
				h.dirty = false
				continue
			}
			c.drop(to, h)
			return true
		}
	}
	return false
}

// Life returns a number that changes with each DropAll: a handle that was begun in an earlier
// life leads nowhere.
func (c *Cache[A]) Life() uint32 { return c.life }

// Discard has a handle closed that is not needed.
func (c *Cache[A]) Discard(ah A) { c.dropped = append(c.dropped, &Handle[A]{AH: ah, made: true}) }

// Made takes a handle that was asked for, or with ok false records that it could not be made, and
// reports whether its first packet was for an unauthenticated peer. Resume or Lost must be called then.
func (c *Cache[A]) Made(to Way, ah A, ok bool) (unauthenticated bool) {
	c.making--
	c.helped = c.Now()
	h := c.of[to]
	switch {
	case h == nil: // it was dropped while it was renewed
		if ok {
			c.Discard(ah)
		}
		return false
	case h.made && !ok: // the old one may be as good
		h.stale, h.renewing = false, false
	case h.made:
		c.dropped = append(c.dropped, h)
		c.of[to] = &Handle[A]{AH: ah, made: true, since: c.helped, dirty: true}
		c.miss(to) // which has the old one, if that was asked for twice
	case !ok:
		c.forget(to) // asked for again by the next packet
	default:
		h.AH, h.made, h.since = ah, true, c.helped
	}
	return h.unauthenticated
}

// Resume returns all packets that wait; the caller passes them to Take again.
func (c *Cache[A]) Resume() []uint32 {
	waiting := c.parked
	c.parked = nil
	return waiting
}

// Lost removes and returns the packets that wait for a handle that cannot be made. way returns
// the way of a packet. Other handles, which may have been too many at once, are asked for.
func (c *Cache[A]) Lost(to Way, way func(i uint32) (w Way, unauthenticated bool)) (lost []uint32) {
	c.parked = slices.DeleteFunc(c.parked, func(i uint32) bool {
		w, unauthenticated := way(i)
		if w == to {
			lost = append(lost, i)
			return true
		}
		c.get(w, unauthenticated)
		return false
	})
	return lost
}

// Waiting returns how many packets wait.
func (c *Cache[A]) Waiting() int { return len(c.parked) }

// Drop forgets the handle of a way on which a packet failed.
func (c *Cache[A]) Drop(to Way) {
	if h := c.of[to]; h != nil {
		c.drop(to, h)
	}
}

func (c *Cache[A]) drop(to Way, h *Handle[A]) {
	if h.made { // else Made handles it
		c.forget(to)
		c.dropped = append(c.dropped, h)
	}
}

func (c *Cache[A]) forget(to Way) {
	c.miss(to)
	delete(c.of, to)
	if c.hosts[to.To]--; c.hosts[to.To] == 0 {
		delete(c.hosts, to.To)
	}
}

// DropAll drops all handles: the host has changed.
func (c *Cache[A]) DropAll() {
	c.life++
	for to, h := range c.of {
		c.drop(to, h)
	}
}

// Renew has the handles to a port made again when they are used next: they may lead nowhere.
func (c *Cache[A]) Renew(to GID) {
	for path := range c.Labels {
		if h := c.of[c.Way(to, path)]; h != nil {
			h.stale = true
			c.miss(c.Way(to, path))
		}
	}
}

// miss takes a way out of latest, or the one that has its place: its next get looks into the map.
func (c *Cache[A]) miss(to Way) { c.latest[to.Label%latestFound].h = nil }

// Unused removes and returns the handles that were dropped and are not in use.
func (c *Cache[A]) Unused() (out []A) {
	c.dropped = slices.DeleteFunc(c.dropped, func(h *Handle[A]) bool {
		if h.Uses == 0 {
			out = append(out, h.AH)
		}
		return h.Uses == 0
	})
	return out
}

// All calls f for each handle that was made and not returned by Unused.
func (c *Cache[A]) All(f func(Way, A)) {
	for to, h := range c.of {
		if h.made {
			f(to, h.AH)
		}
	}
	for _, h := range c.dropped {
		f(Way{}, h.AH)
	}
}
