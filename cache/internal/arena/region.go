package arena

import (
	"math/bits"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

type region struct {
	mem    []byte
	units  int
	taken  bitmap // units of records and of what is in quarantine
	starts bitmap // the first ones
	live   []int  // units of records, in each granule
	shift  int    // the logarithm of the units of a granule
}

// A region is compacted by granules, of which it has hundreds, and which are no longer than 64 KiB.
const (
	granules   = 256
	maxGranule = 11 // as a logarithm of units
)

func newRegion(mem []byte) region {
	n := len(mem) / wire.SlotUnit
	shift := min(bits.Len(uint(n/granules)), maxGranule)
	return region{mem, n, make(bitmap, n/64+1), make(bitmap, n/64+1), make([]int, n>>shift+1), shift}
}

// count adds change units to the granules of n units from i on, by their shares.
func (r *region) count(i, n, change int) {
	for end := i + n; i < end; {
		g := i >> r.shift
		here := min(end, (g+1)<<r.shift) - i
		r.live[g] += here * change / n
		i += here
	}
}

// Reserve chooses the range of at least n bytes with the fewest live ones, gives out nothing of it until all of
// it is free, and appends the records in it, alive or in quarantine. It avoids a place, if that is not 0 and
// there is another range. It reports whether there is one; while a long enough one is reserved it returns that, and
// no record but the one that was to be avoided when it was chosen.
func (a *Arena) Reserve(n int, avoid wire.Place, records [][]byte) ([][]byte, bool) {
	want := unitsOf(n)
	if int(a.to-a.from) >= want {
		if p := a.avoided; p != 0 && p != avoid {
			a.avoided = 0
			if r := &a.regions[p.Region()]; r.starts.get(at(p).index()) {
				records = append(records, a.Bytes(p))
			}
		}
		return records, true
	}
	a.unreserve()
	if avoid != 0 {
		r, many := &a.regions[avoid.Region()], unitsOf(avoid.Length())
		r.count(at(avoid).index(), many, many<<20)
		defer r.count(at(avoid).index(), many, -many<<20)
	}
	for range a.regions {
		a.turn = (a.turn + 1) % len(a.regions)
		r := &a.regions[a.turn]
		width := (want + 1<<r.shift - 1) >> r.shift
		first, ok := r.emptiest(width)
		if !ok {
			continue
		}
		base := unit(a.turn) << unitBits
		a.from, a.to = base+unit(first<<r.shift), base+unit(min((first+width)<<r.shift, r.units))
		i, end := a.from.index(), a.to.index()
		if a.refile(base, i, end); avoid != 0 && at(avoid) < a.to && at(avoid)+unit(unitsOf(avoid.Length())) > a.from {
			a.avoided = avoid
		}
		return r.records(i, end, records), true
	}
	return records, false
}

// emptiest returns the first of width granules that have the fewest live units.
func (r *region) emptiest(width int) (first int, ok bool) {
	all := r.units >> r.shift // whole ones
	if width > all {
		return 0, false
	}
	sum, least := 0, 0 // more than in the first ones
	for i := width; i < all; i++ {
		if sum += r.live[i] - r.live[i-width]; sum < least {
			first, least = i-width+1, sum
		}
	}
	return first, true
}

// unreserve gives a range up.
func (a *Arena) unreserve() {
	a.from, a.to, a.avoided = 0, 0, 0
	for u := a.bins[held]; u != none; u = a.bins[held] {
		a.unlink(u)
		a.file(u, a.size(u))
	}
}

// refile takes the free extents of the reserved range out of their bins.
func (a *Arena) refile(base unit, i, end int) {
	r := &a.regions[base.region()]
	for i = r.taken.next(i, end, false); i < end; i = r.taken.next(i, end, false) {
		u := base + unit(r.taken.last(i)+1)
		n := a.size(u)
		a.unlink(u)
		a.file(u, n)
		i = u.index() + n
	}
}

// records appends the records that have units from i to end.
func (r *region) records(i, end int, records [][]byte) [][]byte {
	if r.taken.get(i) {
		i = r.starts.last(i)
	} else {
		i = r.starts.next(i, end, true)
	}
	for i < end {
		records = append(records, r.mem[i*wire.SlotUnit:])
		i = r.starts.next(i+1, end, true)
	}
	return records
}

// bitmap has a bit for each unit.
type bitmap []uint64

func (b bitmap) get(i int) bool { return b[i/64]>>(i%64)&1 != 0 }

// set writes n bits from i on.
func (b bitmap) set(i, n int, to bool) {
	for end := i + n; i < end; {
		here := min(64-i%64, end-i)
		mask := ^uint64(0) >> (64 - here) << (i % 64)
		if to {
			b[i/64] |= mask
		} else {
			b[i/64] &^= mask
		}
		i += here
	}
}

// next returns the first bit of a kind from i on, or end.
func (b bitmap) next(i, end int, kind bool) int {
	for i < end {
		w := b[i/64]
		if !kind {
			w = ^w
		}
		if w >>= i % 64; w != 0 {
			return min(i+bits.TrailingZeros64(w), end)
		}
		i += 64 - i%64
	}
	return end
}

// last returns the last bit up to i that is set, or -1.
func (b bitmap) last(i int) int {
	for i >= 0 {
		if w := b[i/64] << (63 - i%64); w != 0 {
			return i - bits.LeadingZeros64(w)
		}
		i -= i%64 + 1
	}
	return -1
}
