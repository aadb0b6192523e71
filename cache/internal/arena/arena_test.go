package arena

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

const longest = 64 << 10

func newArena(t *testing.T, regions ...int) *Arena {
	a, err := New(longest)
	require.NoError(t, err)
	for _, n := range regions {
		_, err := a.Add(make([]byte, n))
		require.NoError(t, err)
	}
	return a
}

func TestRegions(t *testing.T) {
	a := newArena(t)
	_, err := a.Add(make([]byte, longest+1))
	require.Error(t, err)
	_, err = a.Add(nil)
	require.Error(t, err)
	for _, n := range []int{-1, 0, wire.MaxRecord + 1} {
		_, err = New(n)
		require.Error(t, err, n)
	}
	_, err = New(wire.MaxRecord)
	require.NoError(t, err)
	_, ok := a.Alloc(100)
	require.False(t, ok, "no memory")
	require.True(t, a.Fits(longest))
	require.False(t, a.Fits(longest+1))
	_, ok = a.Reserve(100, 0, nil)
	require.False(t, ok)
	_, err = a.Add(make([]byte, 2*longest))
	require.NoError(t, err)
	_, ok = a.Alloc(longest + 1)
	require.False(t, ok, "longer than the longest record")
}

// A place has 15 bits for its region.
func TestMostRegions(t *testing.T) {
	a := newArena(t)
	mem := make([]byte, wire.SlotUnit)
	for n := range 1 << 15 {
		id, err := a.Add(mem)
		require.NoError(t, err)
		require.EqualValues(t, n, id)
	}
	_, err := a.Add(mem)
	require.Error(t, err)
}

// A place is given out again when all clients have left its delta behind, not before.
func TestQuarantine(t *testing.T) {
	a := newArena(t, longest)
	p, ok := a.Alloc(longest)
	require.True(t, ok)
	_, ok = a.Alloc(1)
	require.False(t, ok)
	a.Free(p, 5)
	require.Equal(t, longest, a.Stats().Quarantine)
	a.Release(4)
	_, ok = a.Alloc(longest)
	require.False(t, ok, "in quarantine")
	a.Release(5)
	_, ok = a.Alloc(longest)
	require.True(t, ok)
}

// Records never overlap, whatever comes and goes and whichever range is reserved, and when all is free each region
// is one extent again.
func TestPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	sizes := []int{3 * longest, wire.SlotUnit, 5*longest + 37*wire.SlotUnit}
	a := newArena(t, sizes...)
	live, order := map[wire.Place]bool{}, []wire.Place(nil)
	seq, reserved := uint64(0), 0
	for n := range 8000 {
		switch op := rng.IntN(8); {
		case op < 4:
			p, ok := a.Alloc(1 + rng.IntN(64<<rng.IntN(10)))
			if !ok {
				continue
			}
			require.True(t, at(p) >= a.to || at(p)+unit(unitsOf(p.Length())) <= a.from, "in the reserved range")
			fill(a.Bytes(p), p)
			live[p] = true
			order = append(order, p)
		case op == 4:
			seq++
			a.Release(seq - min(seq, uint64(rng.IntN(30))))
		case op == 5 && rng.IntN(3) == 0:
			from, to := a.from, a.to
			var avoid wire.Place
			if len(order) > 0 {
				avoid = order[0]
			}
			size := 1 + rng.IntN(longest)
			records, ok := a.Reserve(size, avoid, nil)
			require.True(t, ok)
			if from == a.from && to == a.to {
				require.Empty(t, records)
				continue
			}
			reserved++
			moving := map[wire.Place]bool{}
			for _, r := range records {
				moving[wire.Place(binary.LittleEndian.Uint64(r))] = true
			}
			for _, p := range order { // all of those in the range, and no other
				in := at(p) < a.to && at(p)+unit(unitsOf(p.Length())) > a.from
				require.True(t, !in || moving[p])
			}
		default:
			if len(order) == 0 {
				continue
			}
			i := rng.IntN(len(order))
			p := order[i]
			require.True(t, filled(a.Bytes(p), p), "records overlap")
			a.Free(p, seq)
			delete(live, p)
			order[i] = order[len(order)-1]
			order = order[:len(order)-1]
		}
		if n%16 == 0 {
			a.check(t, live)
		}
	}
	require.Greater(t, reserved, 3)
	for _, p := range order {
		a.Free(p, seq)
	}
	a.Release(seq)
	a.check(t, nil)
	require.Zero(t, a.to, "all of the range is free")
	for i, n := range sizes {
		require.Equal(t, n/wire.SlotUnit, a.size(unit(i)<<unitBits))
	}
}

// A record begins with its place, and ends with it.
func fill(b []byte, p wire.Place) {
	binary.LittleEndian.PutUint64(b, uint64(p))
	binary.LittleEndian.PutUint64(b[len(b)-8:], uint64(p))
}

func filled(b []byte, p wire.Place) bool {
	return wire.Place(binary.LittleEndian.Uint64(b)) == p && wire.Place(binary.LittleEndian.Uint64(b[len(b)-8:])) == p
}

// The range with the fewest live bytes is chosen, and is free for all when the last record in it has left
// quarantine.
func TestReserve(t *testing.T) {
	a := newArena(t, 4*longest)
	var places []wire.Place
	for {
		p, ok := a.Alloc(4096)
		if !ok {
			break
		}
		places = append(places, p)
	}
	gone := places[len(places)/2:][:16]
	for i, p := range gone {
		if i != 7 {
			a.Free(p, 1)
		}
	}
	records, ok := a.Reserve(longest, 0, nil)
	require.True(t, ok)
	require.Equal(t, [2]unit{at(gone[0]), at(gone[15]) + 4096/wire.SlotUnit}, [2]unit{a.from, a.to})
	require.Len(t, records, 16)
	a.Release(1)
	_, ok = a.Alloc(100)
	require.False(t, ok, "the range is reserved")
	again, ok := a.Reserve(longest, 0, nil)
	require.True(t, ok)
	require.Empty(t, again, "it is so already")
	a.Free(gone[7], 2)
	a.Release(2)
	_, ok = a.Alloc(longest)
	require.True(t, ok)

	for _, p := range places[:16] {
		a.Free(p, 3)
	}
	_, ok = a.Reserve(4096, places[0], nil)
	require.True(t, ok)
	require.False(t, at(places[0]) < a.to && at(places[0])+4096/wire.SlotUnit > a.from, "a place is avoided")
	_, ok = a.Reserve(longest, 0, nil)
	require.True(t, ok)
	require.GreaterOrEqual(t, int(a.to-a.from), unitsOf(longest), "a longer one")
}

// A record that must not move is in every range if there is too little memory. Then it is returned later, when it may
// move: it does not keep the range from all other records.
func TestAvoidedRecordMovesLater(t *testing.T) {
	a := newArena(t, 2*longest)
	first, ok := a.Alloc(longest / 2)
	require.True(t, ok)
	middle, ok := a.Alloc(longest)
	require.True(t, ok)
	_, ok = a.Alloc(longest / 2)
	require.True(t, ok)
	fill(a.Bytes(middle), middle)
	_, ok = a.Reserve(longest, middle, nil)
	require.True(t, ok)
	a.Free(first, 1)
	a.Release(1)
	records, ok := a.Reserve(longest, middle, nil)
	require.True(t, ok)
	require.Empty(t, records, "it still must not move")
	records, ok = a.Reserve(longest, 0, nil)
	require.True(t, ok)
	require.Len(t, records, 1)
	require.Equal(t, uint64(middle), binary.LittleEndian.Uint64(records[0]))
	records, _ = a.Reserve(longest, 0, nil)
	require.Empty(t, records, "it was returned")
	a.Free(middle, 2)
	a.Release(2)
	_, ok = a.Alloc(longest)
	require.True(t, ok)
}

// A record that had to be avoided, and is gone when it may move, is not returned.
func TestAvoidedRecordIsGone(t *testing.T) {
	a := newArena(t, 2*longest)
	first, _ := a.Alloc(longest / 2)
	middle, _ := a.Alloc(longest)
	_, ok := a.Alloc(longest / 2)
	require.True(t, ok)
	_, ok = a.Reserve(longest, middle, nil)
	require.True(t, ok)
	require.Less(t, at(first), a.to)
	a.Free(middle, 1)
	a.Release(1)
	records, ok := a.Reserve(longest, 0, nil)
	require.True(t, ok)
	require.Empty(t, records)
}

// A record beside the range, before or behind it, is not in it: it is not returned when it may move, and free space there
// is given out.
func TestNeighboursOfTheRange(t *testing.T) {
	const size = 4096
	for _, beside := range []int{-1, 1} {
		a := newArena(t, 16*size)
		var places []wire.Place
		for range 16 {
			p, ok := a.Alloc(size)
			require.True(t, ok)
			places = append(places, p)
		}
		avoid := places[5+beside]
		a.Free(places[5], 1)
		records, ok := a.Reserve(size, avoid, nil)
		require.True(t, ok)
		require.Equal(t, [2]unit{at(places[5]), at(places[6])}, [2]unit{a.from, a.to})
		require.Len(t, records, 1, "what is in quarantine")
		records, ok = a.Reserve(size, 0, nil)
		require.True(t, ok)
		require.Empty(t, records)
		for _, p := range []wire.Place{places[4], places[6]} {
			a.Free(p, 2)
		}
		a.quarantine.pop() // the range stays
		a.Release(2)
		for _, want := range []wire.Place{places[6], places[4]} {
			p, ok := a.Alloc(size)
			require.True(t, ok)
			require.Equal(t, want, p)
		}
	}
}

// The range is as long as it has to be, in whichever region there is one: also if that is all of a region, or if the
// end of a region, which is shorter, has fewer live bytes.
func TestReservedRangeIsLongEnough(t *testing.T) {
	for _, regions := range [][]int{{longest}, {wire.SlotUnit, longest}, {4096, wire.SlotUnit, 3 * longest}, {5*longest + 37*wire.SlotUnit}} {
		a := newArena(t, regions...)
		for ok := true; ok; {
			_, ok = a.Alloc(wire.SlotUnit)
		}
		_, ok := a.Reserve(longest, 0, nil)
		require.True(t, ok, regions)
		require.GreaterOrEqual(t, int(a.to-a.from), unitsOf(longest), regions)
		require.Equal(t, a.from.region(), (a.to - 1).region(), regions)
	}
}

// The bytes that 1 KiB values take, each with a header and a key of 20 bytes.
func TestOverhead(t *testing.T) {
	a := newArena(t, 16<<20)
	n := 0
	for {
		if _, ok := a.Alloc(wire.RecordSize(20, 1024)); !ok {
			break
		}
		n++
	}
	perByte := float64(16<<20) / float64(n*1024)
	require.Less(t, perByte, 1.18)
	t.Logf("%.3f bytes of arena for each byte of value", perByte)
}
