package arena

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// An arena of more than 4 GiB, of which no region is longer than 2 GiB: places in all of it are told
// apart, in the first bytes and the last ones of each region.
func TestMemoryAbove4GiB(t *testing.T) {
	const large = 2 << 20
	a, err := New(large)
	require.NoError(t, err)
	for i := range 3 { // addresses alone: pages come when they are written
		mem, err := unix.Mmap(-1, 0, wire.MaxRegion, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Munmap(mem) })
		n, err := a.Add(mem)
		require.NoError(t, err)
		require.EqualValues(t, i, n)
	}
	const slots = 3 * wire.MaxRegion / large
	require.Equal(t, 3*wire.MaxRegion, a.Stats().Total)
	seen := map[wire.Place]bool{}
	at := map[uint16]int{} // region to the bytes that were given out
	for i := range slots {
		p, ok := a.Alloc(large - wire.ReadUnit)
		require.True(t, ok, i)
		require.False(t, seen[p])
		seen[p] = true
		b := a.Bytes(p)
		at[p.Region()] += large
		if edge := p.Offset() == 0 || p.Offset() == wire.MaxRegion-large; edge {
			b[0], b[len(b)-1] = byte(p.Region()+1), byte(p.Region()+101)
		}
	}
	_, ok := a.Alloc(large)
	require.False(t, ok, "all is given out")
	require.Equal(t, map[uint16]int{0: wire.MaxRegion, 1: wire.MaxRegion, 2: wire.MaxRegion}, at)
	for p := range seen {
		if p.Offset() == 0 || p.Offset() == wire.MaxRegion-large {
			b := a.Bytes(p)
			require.Equal(t, []byte{byte(p.Region() + 1), byte(p.Region() + 101)}, []byte{b[0], b[len(b)-1]})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(seen)) {
		a.Free(p, 1)
	}
	a.Release(1)
	for i := range a.regions { // which are neighbours by their units' numbers
		require.Equal(t, wire.MaxRegion/wire.SlotUnit, a.size(unit(i)<<unitBits))
	}
	require.Zero(t, a.Stats().Quarantine)
}
