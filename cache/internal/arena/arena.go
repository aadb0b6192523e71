// Package arena allocates memory that clients may READ, and reuses it only when no READ can be under way.
//
// Memory comes in regions, any []byte. A record takes one extent, of whole units of [wire.SlotUnit]. Free extents
// are joined with their neighbours and kept in bins by their length, of which the first that fits is found by
// bitmaps (Masmano, Ripoll, Crespo and Real, "TLSF", 2004). When none is long enough, [Arena.Reserve] chooses a
// range from which records have to move.
package arena

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Arena is not for several goroutines.
type Arena struct {
	longest    int
	regions    []region
	bins       [bins]unit // the first free extent of each, or none
	full       [bins / 64]uint64
	quarantine queue
	stats      Stats

	from, to unit       // the range that is reserved
	avoided  wire.Place // a record in it that could not move when it was chosen, or 0
	turn     int        // the region that is next to be compacted
}

// Stats is where the bytes are.
type Stats struct {
	Total      int // of all regions
	Live       int // of records
	Quarantine int // in quarantine
}

// unit is the number of a unit: of its region and in that.
type unit uint64

const (
	unitBits = 26 // of a unit's number in its region
	none     = ^unit(0)

	bins = 256
	held = bins - 1 // the bin of what lies in the reserved range
)

func (u unit) region() int { return int(u >> unitBits) }
func (u unit) index() int  { return int(u & (1<<unitBits - 1)) }

func unitsOf(bytes int) int { return (bytes + wire.SlotUnit - 1) / wire.SlotUnit }

// New makes an arena without memory, for records of at most longest bytes.
func New(longest int) (*Arena, error) {
	if longest <= 0 || longest > wire.MaxRecord {
		return nil, fmt.Errorf("cache: records of %d bytes: from 1 to %d", longest, wire.MaxRecord)
	}
	a := &Arena{longest: longest}
	for i := range a.bins {
		a.bins[i] = none
	}
	return a, nil
}

// Add gives the arena a region and returns its number.
func (a *Arena) Add(mem []byte) (uint16, error) {
	if len(mem) == 0 || len(mem) > wire.MaxRegion || len(mem)%wire.SlotUnit != 0 || len(a.regions) > 1<<15-1 {
		return 0, fmt.Errorf("cache: region of %d bytes: not of whole units of %d, or too large", len(mem), wire.SlotUnit)
	}
	n := len(a.regions)
	a.regions = append(a.regions, newRegion(mem))
	a.stats.Total += len(mem)
	a.file(unit(n)<<unitBits, len(mem)/wire.SlotUnit)
	return uint16(n), nil
}

// Longest returns the length of the longest record.
func (a *Arena) Longest() int { return a.longest }

// Fits reports whether a record of n bytes is short enough.
func (a *Arena) Fits(n int) bool { return n <= a.longest }

// SlotSize returns the bytes that a record of n bytes takes.
func (a *Arena) SlotSize(n int) int { return unitsOf(n) * wire.SlotUnit }

// Alloc returns a place for a record of n bytes, if there is one.
func (a *Arena) Alloc(n int) (wire.Place, bool) {
	want := unitsOf(n)
	u, ok := a.find(want)
	if !ok || n > a.longest {
		return 0, false
	}
	size := a.size(u)
	a.unlink(u)
	if size > want {
		a.file(u+unit(want), size-want)
	}
	r := &a.regions[u.region()]
	r.taken.set(u.index(), want, true)
	r.starts.set(u.index(), 1, true)
	r.count(u.index(), want, want)
	a.stats.Live += want * wire.SlotUnit
	return wire.PlaceOf(uint16(u.region()), u.index()*wire.SlotUnit, n), true
}

// Has reports whether there is a place for a record of n bytes.
func (a *Arena) Has(n int) bool {
	_, ok := a.find(max(unitsOf(n), 1))
	return ok
}

// find returns a free extent of at least n units.
func (a *Arena) find(n int) (unit, bool) {
	b := bin(n)
	if u := a.bins[b]; u != none && a.size(u) >= n {
		return u, true
	}
	b++ // of which all are long enough
	for w := b / 64; w < len(a.full); w++ {
		some := a.full[w]
		if w == b/64 {
			some &= ^uint64(0) << (b % 64)
		}
		if b := 64*w + bits.TrailingZeros64(some); some != 0 && b != held {
			return a.bins[b], true
		}
	}
	return 0, false
}

// bin returns the logarithm of n > 0 in eighths of an octave.
func bin(n int) int {
	log := bits.Len(uint(n)) - 1
	return 8*log + n<<3>>log&7
}

func at(p wire.Place) unit {
	return unit(p.Region())<<unitBits | unit(p.Offset()/wire.SlotUnit)
}

// Bytes returns the bytes of a record, as many as a READ of it fetches.
func (a *Arena) Bytes(p wire.Place) []byte {
	return a.regions[p.Region()].mem[p.Offset() : p.Offset()+p.Length()]
}

// Free puts a place into quarantine: seq is the delta after which no client has it any more.
func (a *Arena) Free(p wire.Place, seq uint64) {
	n := unitsOf(p.Length())
	a.regions[p.Region()].count(at(p).index(), n, -n)
	a.stats.Live -= n * wire.SlotUnit
	a.stats.Quarantine += n * wire.SlotUnit
	a.quarantine.push(quarantined{seq, p})
}

// Release ends the quarantine of what was freed by deltas up to horizon.
func (a *Arena) Release(horizon uint64) {
	for a.quarantine.len() > 0 && a.quarantine.first().seq <= horizon {
		p := a.quarantine.pop().place
		u, n := at(p), unitsOf(p.Length())
		a.stats.Quarantine -= n * wire.SlotUnit
		r := &a.regions[u.region()]
		r.taken.set(u.index(), n, false)
		r.starts.set(u.index(), 1, false)
		if next := u + unit(n); next.index() < r.units && next.region() == u.region() && !r.taken.get(next.index()) {
			n += a.size(next)
			a.unlink(next)
		}
		if u.index() > 0 && !r.taken.get(u.index()-1) {
			before := a.tag(u-1, tagEnd)
			u -= unit(before)
			n += before
			a.unlink(u)
		}
		a.file(u, n)
	}
}

// Stats returns the numbers of bytes.
func (a *Arena) Stats() Stats { return a.stats }

// Offsets of tags in a free extent: in its first unit, and in its last one. All fit into one unit.
const (
	tagSize = 0
	tagBin  = 4
	tagNext = 8
	tagPrev = 16
	tagEnd  = 24 // its size again
)

func (a *Arena) mem(u unit) []byte {
	return a.regions[u.region()].mem[u.index()*wire.SlotUnit:]
}

func (a *Arena) link(u unit, tag int) unit { return unit(binary.LittleEndian.Uint64(a.mem(u)[tag:])) }
func (a *Arena) setLink(u unit, tag int, to unit) {
	binary.LittleEndian.PutUint64(a.mem(u)[tag:], uint64(to))
}
func (a *Arena) tag(u unit, tag int) int   { return int(binary.LittleEndian.Uint32(a.mem(u)[tag:])) }
func (a *Arena) setTag(u unit, tag, x int) { binary.LittleEndian.PutUint32(a.mem(u)[tag:], uint32(x)) }
func (a *Arena) size(u unit) int           { return a.tag(u, tagSize) }

// file puts a free extent into its bin. When all of the reserved range is free it is so for all.
func (a *Arena) file(u unit, n int) {
	b := bin(n)
	switch end := u + unit(n); {
	case u <= a.from && end >= a.to:
		a.from, a.to = 0, 0
	case u < a.to && end > a.from:
		b = held
	}
	a.setTag(u, tagSize, n)
	a.setTag(u+unit(n-1), tagEnd, n)
	a.setTag(u, tagBin, b)
	next := a.bins[b]
	a.setLink(u, tagNext, next)
	a.setLink(u, tagPrev, none)
	if next != none {
		a.setLink(next, tagPrev, u)
	}
	a.bins[b] = u
	a.full[b/64] |= 1 << (b % 64)
}

func (a *Arena) unlink(u unit) {
	b, next, prev := a.tag(u, tagBin), a.link(u, tagNext), a.link(u, tagPrev)
	if next != none {
		a.setLink(next, tagPrev, prev)
	}
	if prev != none {
		a.setLink(prev, tagNext, next)
	} else if a.bins[b] = next; next == none {
		a.full[b/64] &^= 1 << (b % 64)
	}
}
