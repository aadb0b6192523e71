// Package arena gives out slots of memory that clients may READ, and takes them back
// only when no READ can be under way.
//
// Memory comes in regions, any []byte of whole pages. A page is given to one size class
// at a time and goes back when all its slots are free.
package arena

import (
	"fmt"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Arena is not for several goroutines.
type Arena struct {
	pageSize int
	classes  []class
	regions  []region
	pages    []page
	spare    []int32 // pages of no class
	limbo    queue
	stats    Stats
}

// Stats is where the bytes are.
type Stats struct {
	Total int // of all pages
	Live  int // of slots that are given out
	Limbo int // of slots in quarantine
	Spare int // pages of no class
}

type region struct {
	mem   []byte
	first int32 // its first page
}

type class struct {
	size    int
	partial int32 // the first page with free slots, or -1
}

type page struct {
	region     uint16
	class      int16 // -1: none
	draining   bool
	offset     int
	used       int // slots that are given out or in limbo
	free       []uint32
	owners     []uint32
	next, prev int32 // of those with free slots
}

// none is the owner of a slot that is free or in limbo.
const none = ^uint32(0)

// New makes an arena without memory. The page size is a multiple of 64 KiB; no slot is
// larger than a page.
func New(pageSize int) (*Arena, error) {
	if pageSize <= 0 || pageSize%(64<<10) != 0 || pageSize > wire.MaxRegion || pageSize > wire.MaxRecord {
		return nil, fmt.Errorf("cache: page of %d bytes: not a multiple of 64 KiB, or too large", pageSize)
	}
	a := &Arena{pageSize: pageSize}
	for size := 128; size < pageSize/8; size += max(wire.SlotUnit, size/8/wire.SlotUnit*wire.SlotUnit) {
		a.classes = append(a.classes, class{size, -1})
	}
	for n := 8; n > 0; n-- {
		a.classes = append(a.classes, class{pageSize / n / wire.SlotUnit * wire.SlotUnit, -1})
	}
	return a, nil
}

// Add gives the arena a region, and answers its number.
func (a *Arena) Add(mem []byte) (uint16, error) {
	if len(mem) == 0 || len(mem) > wire.MaxRegion || len(mem)%a.pageSize != 0 || len(a.regions) > 1<<16-2 {
		return 0, fmt.Errorf("cache: region of %d bytes: not of whole pages of %d, or too large", len(mem), a.pageSize)
	}
	n := uint16(len(a.regions))
	a.regions = append(a.regions, region{mem, int32(len(a.pages))})
	for offset := 0; offset < len(mem); offset += a.pageSize {
		a.spare = append(a.spare, int32(len(a.pages)))
		a.pages = append(a.pages, page{region: n, class: -1, offset: offset, next: -1, prev: -1})
	}
	a.stats.Total += len(mem)
	return n, nil
}

// Page is the length of a page: no record is longer.
func (a *Arena) Page() int { return a.pageSize }

// Fits tells whether a record of n bytes has a size class.
func (a *Arena) Fits(n int) bool { return n <= a.pageSize }

// SlotSize is what a record of n bytes takes.
func (a *Arena) SlotSize(n int) int { return a.classes[a.classOf(n)].size }

func (a *Arena) classOf(n int) int {
	lo, hi := 0, len(a.classes)-1
	for lo < hi {
		if mid := (lo + hi) / 2; a.classes[mid].size >= n {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// Alloc gives out a slot for a record of n bytes to an owner, or nothing.
func (a *Arena) Alloc(n int, owner uint32) (wire.Place, bool) {
	if !a.Fits(n) {
		return 0, false
	}
	ci := a.classOf(n)
	c := &a.classes[ci]
	if c.partial < 0 && !a.takePage(ci) {
		return 0, false
	}
	id := c.partial
	p := &a.pages[id]
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	if len(p.free) == 0 {
		a.unlink(id)
	}
	p.used++
	p.owners[slot] = owner
	a.stats.Live += c.size
	return wire.PlaceOf(p.region, p.offset+int(slot)*c.size, n), true
}

func (a *Arena) takePage(ci int) bool {
	if len(a.spare) == 0 {
		return false
	}
	id := a.spare[len(a.spare)-1]
	a.spare = a.spare[:len(a.spare)-1]
	p, slots := &a.pages[id], a.pageSize/a.classes[ci].size
	p.class, p.draining, p.used = int16(ci), false, 0
	p.free, p.owners = make([]uint32, slots), make([]uint32, slots)
	for i := range p.free {
		p.free[i], p.owners[i] = uint32(slots-1-i), none
	}
	a.link(id)
	return true
}

// link and unlink keep the list of a class's pages that have free slots.
func (a *Arena) link(id int32) {
	p := &a.pages[id]
	c := &a.classes[p.class]
	p.prev, p.next = -1, c.partial
	if c.partial >= 0 {
		a.pages[c.partial].prev = id
	}
	c.partial = id
}

func (a *Arena) unlink(id int32) {
	p := &a.pages[id]
	if p.prev >= 0 {
		a.pages[p.prev].next = p.next
	} else {
		a.classes[p.class].partial = p.next
	}
	if p.next >= 0 {
		a.pages[p.next].prev = p.prev
	}
	p.next, p.prev = -1, -1
}

func (a *Arena) at(pl wire.Place) (id int32, slot uint32) {
	id = a.regions[pl.Region()].first + int32(pl.Offset()/a.pageSize)
	return id, uint32(pl.Offset() % a.pageSize / a.classes[a.pages[id].class].size)
}

// Bytes are the bytes of a record, as many as a READ of it fetches.
func (a *Arena) Bytes(pl wire.Place) []byte {
	mem := a.regions[pl.Region()].mem
	return mem[pl.Offset() : pl.Offset()+pl.Length()]
}

// Free takes a slot back into quarantine: seq is the delta after which no client has
// its place any more.
func (a *Arena) Free(pl wire.Place, seq uint64) {
	id, slot := a.at(pl)
	p := &a.pages[id]
	p.owners[slot] = none
	size := a.classes[p.class].size
	a.stats.Live -= size
	a.stats.Limbo += size
	a.limbo.push(resting{seq, id, slot})
}

// Release ends the quarantine of what was freed by deltas up to horizon.
func (a *Arena) Release(horizon uint64) {
	for a.limbo.len() > 0 && a.limbo.first().seq <= horizon {
		r := a.limbo.pop()
		p := &a.pages[r.page]
		a.stats.Limbo -= a.classes[p.class].size
		p.free = append(p.free, r.slot)
		p.used--
		switch {
		case p.used == 0:
			if !p.draining && len(p.free) > 1 {
				a.unlink(r.page)
			}
			p.class, p.draining, p.free, p.owners = -1, false, nil, nil
			a.spare = append(a.spare, r.page)
		case len(p.free) == 1 && !p.draining:
			a.link(r.page)
		}
	}
}

// Drain chooses the page with the fewest live slots among those of other classes than
// that of n bytes, gives out none of its slots any more, and appends the owners of the
// live ones: when they have been freed the page is free for all. It answers nothing
// while a page is being drained.
func (a *Arena) Drain(n int, owners []uint32) []uint32 {
	ci, best, least := int16(a.classOf(n)), int32(-1), 0
	for id := range a.pages {
		p := &a.pages[id]
		if p.draining {
			return owners
		}
		if p.class < 0 || p.class == ci {
			continue
		}
		if bytes := p.used * a.classes[p.class].size; best < 0 || bytes < least {
			best, least = int32(id), bytes
		}
	}
	if best < 0 {
		return owners
	}
	p := &a.pages[best]
	if len(p.free) > 0 {
		a.unlink(best)
	}
	p.draining = true
	for _, o := range p.owners {
		if o != none {
			owners = append(owners, o)
		}
	}
	return owners
}

// Stats are the numbers of bytes.
func (a *Arena) Stats() Stats {
	s := a.stats
	s.Spare = len(a.spare)
	return s
}
