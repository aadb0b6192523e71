package arena

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// check sees that places, quarantine and free extents cover each region once, that no two free extents are
// neighbours, and that bins, bitmaps and counters say the same.
func (a *Arena) check(t testing.TB, live map[wire.Place]bool) {
	t.Helper()
	owned := map[unit]int{} // the units of each record
	want := Stats{}
	for p := range live {
		owned[at(p)] = unitsOf(p.Length())
		want.Live += unitsOf(p.Length()) * wire.SlotUnit
	}
	for i, last := 0, uint64(0); i < a.quarantine.len(); i++ {
		r := a.quarantine.ring[(a.quarantine.head+i)%len(a.quarantine.ring)]
		require.GreaterOrEqual(t, r.seq, last, "quarantine is in the order of time")
		last = r.seq
		owned[at(r.place)] = unitsOf(r.place.Length())
		want.Quarantine += unitsOf(r.place.Length()) * wire.SlotUnit
	}
	binned := map[unit]int{}
	for b := range a.bins {
		prev := none
		require.Equal(t, a.bins[b] != none, a.full[b/64]>>(b%64)&1 != 0, "bin %d", b)
		for u := a.bins[b]; u != none; u = a.link(u, tagNext) {
			require.Equal(t, prev, a.link(u, tagPrev))
			require.EqualValues(t, b, a.tag(u, tagBin))
			binned[u], prev = b, u
		}
	}
	for n := range a.regions {
		r, base := &a.regions[n], unit(n)<<unitBits
		want.Total += len(r.mem)
		counts := make([]int, len(r.live))
		for i, free := 0, false; i < r.units; {
			size, taken := owned[base+unit(i)]
			require.Equal(t, taken, r.taken.get(i), "unit %d", i)
			require.Equal(t, taken, r.starts.get(i), "unit %d", i)
			if !taken {
				require.False(t, free, "two free extents are neighbours")
				size = a.size(base + unit(i))
				b, ok := binned[base+unit(i)]
				require.True(t, ok, "unit %d is lost", i)
				overlaps := base+unit(i) < a.to && base+unit(i+size) > a.from
				require.True(t, b == bin(size) && !overlaps || b == held && overlaps, "bin %d of %d units", b, size)
				require.Equal(t, size, a.tag(base+unit(i+size-1), tagEnd))
				delete(binned, base+unit(i))
			}
			for j := i + 1; j < i+size; j++ {
				require.Equal(t, taken, r.taken.get(j), "unit %d", j)
				require.False(t, r.starts.get(j), "unit %d", j)
			}
			i, free = i+size, !taken
		}
		for p := range live {
			for i := range unitsOf(p.Length()) {
				if p.Region() == uint16(n) {
					counts[(at(p).index()+i)>>r.shift]++
				}
			}
		}
		require.Equal(t, counts, r.live)
	}
	require.Empty(t, binned)
	require.Equal(t, want, a.Stats())
}
