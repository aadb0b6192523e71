package arena

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

const pageSize = 64 << 10

func newArena(t *testing.T, pages ...int) *Arena {
	a, err := New(pageSize)
	require.NoError(t, err)
	for _, n := range pages {
		_, err := a.Add(make([]byte, n*pageSize))
		require.NoError(t, err)
	}
	return a
}

func TestRegions(t *testing.T) {
	a := newArena(t)
	_, err := a.Add(make([]byte, pageSize+1))
	require.Error(t, err)
	_, err = a.Add(nil)
	require.Error(t, err)
	_, err = New(1000)
	require.Error(t, err)
	_, ok := a.Alloc(100, 0)
	require.False(t, ok, "no memory")
	_, ok = a.Alloc(pageSize+1, 0)
	require.False(t, ok, "no class")
}

// A slot is given out again when all clients have left its delta behind, not before.
func TestQuarantine(t *testing.T) {
	a := newArena(t, 1)
	p, ok := a.Alloc(pageSize, 1)
	require.True(t, ok)
	_, ok = a.Alloc(pageSize, 2)
	require.False(t, ok)
	a.Free(p, 5)
	require.Equal(t, pageSize, a.Stats().Limbo)
	a.Release(4)
	_, ok = a.Alloc(pageSize, 2)
	require.False(t, ok, "in quarantine")
	a.Release(5)
	_, ok = a.Alloc(pageSize, 2)
	require.True(t, ok)
}

// Slots never overlap, whatever comes and goes, and nothing is lost.
func TestSlots(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	a := newArena(t, 3, 17)
	type slot struct {
		place wire.Place
		owner uint32
	}
	var live []slot
	seq := uint64(0)
	for n := range uint32(6000) {
		switch rng.IntN(5) {
		case 0, 1:
			size := 64 + rng.IntN(3000)
			if rng.IntN(3) > 0 { // a few classes of few slots: their pages are many
				size = 8000 << rng.IntN(3)
			}
			p, ok := a.Alloc(size, n)
			if !ok {
				continue
			}
			b := a.Bytes(p)
			require.GreaterOrEqual(t, len(b), size)
			for i := range b {
				b[i] = byte(n)
			}
			live = append(live, slot{p, n})
		case 2:
			seq++
			a.Release(seq - uint64(rng.IntN(30)))
		case 3:
			if rng.IntN(20) > 0 {
				continue
			}
			for _, o := range a.Drain(100, nil) {
				for i, s := range live {
					if s.owner == o {
						a.Free(s.place, seq)
						live = append(live[:i], live[i+1:]...)
						break
					}
				}
			}
		default:
			if len(live) == 0 {
				continue
			}
			i := rng.IntN(len(live))
			for _, c := range a.Bytes(live[i].place) {
				if c != byte(live[i].owner) {
					t.Fatal("slots overlap")
				}
			}
			a.Free(live[i].place, seq)
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		if n%4 == 0 {
			a.check(t)
		}
	}
	for _, s := range live {
		a.Free(s.place, seq)
	}
	a.Release(seq)
	a.check(t)
	require.Equal(t, Stats{Total: 20 * pageSize, Spare: 20}, a.Stats())
	for range 20 {
		_, ok := a.Alloc(pageSize, 0)
		require.True(t, ok)
	}
}

// A page goes from one class to another when what is in it has gone.
func TestDrain(t *testing.T) {
	a := newArena(t, 2)
	var small []wire.Place
	for len(small) < pageSize/128+1 {
		p, ok := a.Alloc(100, uint32(len(small)))
		require.True(t, ok)
		small = append(small, p)
	}
	_, ok := a.Alloc(5000, 9)
	require.False(t, ok)
	owners := a.Drain(5000, nil)
	require.Equal(t, []uint32{pageSize / 128}, owners, "the page with one slot in use")
	require.Empty(t, a.Drain(5000, nil), "one at a time")
	p, ok := a.Alloc(100, 9)
	require.False(t, ok, "a page that is drained gives out nothing: %v", p)
	a.Free(small[pageSize/128], 1)
	a.Release(1)
	_, ok = a.Alloc(5000, 9)
	require.True(t, ok)
}

// A page that was full when it was chosen gives out nothing while it empties, and a class is not
// asked to make room for itself.
func TestDrainOfAFullPage(t *testing.T) {
	a := newArena(t, 1)
	var full []wire.Place
	for {
		p, ok := a.Alloc(8000, uint32(len(full)))
		if !ok {
			break
		}
		full = append(full, p)
	}
	require.Empty(t, a.Drain(8000, nil))
	require.Len(t, a.Drain(100, nil), len(full))
	for i, p := range full[1:] {
		a.Free(p, 1)
		a.Release(1)
		a.check(t)
		_, ok := a.Alloc(8000, 9)
		require.False(t, ok, "after %d slots", i)
	}
	a.Free(full[0], 1)
	a.Release(1)
	a.check(t)
	_, ok := a.Alloc(100, 9)
	require.True(t, ok)
}

// When a page that is drained goes, the others of its class give out slots as before.
func TestDrainLeavesOtherPagesAlone(t *testing.T) {
	a := newArena(t, 2)
	var places []wire.Place
	for n := range uint32(2 * 8) {
		p, ok := a.Alloc(8000, n)
		require.True(t, ok)
		places = append(places, p)
	}
	for _, i := range []int{0, 8, 9} { // both have room, the second one more
		a.Free(places[i], 1)
	}
	a.Release(1)
	require.Len(t, a.Drain(100, nil), 6)
	for _, p := range places[10:] {
		a.Free(p, 2)
	}
	a.Release(2)
	a.check(t)
	p, ok := a.Alloc(8000, 99)
	require.True(t, ok)
	require.Equal(t, places[0].Offset(), p.Offset())
}

// The bytes that 1 KiB values take, each with a header and a key of 20 bytes.
func TestOverhead(t *testing.T) {
	a, err := New(2 << 20)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, 16<<20))
	require.NoError(t, err)
	n := 0
	for {
		if _, ok := a.Alloc(wire.RecordSize(20, 1024), 0); !ok {
			break
		}
		n++
	}
	perByte := float64(16<<20) / float64(n*1024)
	require.Less(t, perByte, 1.18)
	t.Logf("%.3f bytes of arena for each byte of value", perByte)
}

// Whoever owned a slot that was freed is not asked to leave the page when it is drained: it may
// have another slot by now, or be somebody else.
func TestDrainNamesNoFormerOwner(t *testing.T) {
	a, err := New(64 << 10)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, 64<<10))
	require.NoError(t, err)
	var places []wire.Place
	for owner := range uint32(3) {
		p, ok := a.Alloc(1000, owner)
		require.True(t, ok)
		places = append(places, p)
	}
	a.Free(places[1], 1)
	require.ElementsMatch(t, []uint32{0, 2}, a.Drain(60_000, nil))
}
