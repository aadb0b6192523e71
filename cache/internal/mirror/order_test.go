package mirror

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

// Entries with homes in the last places go on at the first ones, in the same order, whatever is put, replaced,
// removed and flushed: a model that is a map of Go's has the same.
func TestSlotsWrapAround(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	type id struct{ f, v uint64 }
	for range 10 {
		var s slots
		want := map[id]uint64{}
		for n := range uint64(300) {
			// A few fingerprints, the last ones, some of which have several entries.
			i := id{math.MaxUint64 - rng.Uint64N(12)*(math.MaxUint64/100), rng.Uint64N(6) + 1}
			switch rng.IntN(7) {
			case 0, 1, 2:
				s.put(i.f, i.v, n)
				want[i] = n
			case 3, 4:
				_, is := want[i]
				require.Equal(t, is, s.remove(i.f, i.v))
				delete(want, i)
			case 5:
				to := id{i.f, rng.Uint64N(6) + 1}
				_, is := want[i]
				_, there := want[to]
				require.Equal(t, is && !there, s.replace(i.f, i.v, to.v, n))
				if is && !there {
					delete(want, i)
					want[to] = n
				}
			case 6:
				if at := s.find(i.f, i.v); at >= 0 {
					s.s[at].version |= used
				}
				if n%50 == 0 {
					s.removeUpTo(i.v)
					for w := range want {
						if w.v <= i.v {
							delete(want, w)
						}
					}
				}
			}
			require.Equal(t, len(want), s.n)
			seen := 0
			for w, place := range want {
				at := s.find(w.f, w.v)
				require.GreaterOrEqual(t, at, 0, "%x %d", w.f, w.v)
				require.Equal(t, place, s.s[at].place)
				if w.f == i.f {
					seen++
				}
			}
			for at := s.first(i.f); at >= 0; at = s.next(at) {
				seen--
			}
			require.Zero(t, seen, "all entries of a fingerprint, each once")
			for at := range s.s {
				if next := s.after(at); s.s[next].version != 0 && s.away(next) > 0 {
					require.NotZero(t, s.s[at].version)
					require.LessOrEqual(t, s.away(next), s.away(at)+1)
				}
			}
		}
	}
}

// What a reply says is of no use without a map that its deltas belong to, nor of another life; nothing goes for it.
func TestLearnWithoutAMap(t *testing.T) {
	m := started(Config{Budget: 1})
	m.Learn(entry(1, 5), 10)
	other := entry(2, 6)
	other.Epoch = 2
	m.Learn(other, 10)
	require.Len(t, m.Lookup(1, nil), 1, "it made no room for that")
	require.ErrorIs(t, m.Deltas(put(12)), ErrGap)
	m.Learn(entry(1, 7), 20)
	require.Zero(t, m.Len())
}

// A delta with an entry of another life ends the old entry all the same.
func TestDeltaOfAnotherLife(t *testing.T) {
	m := started(Config{})
	require.NoError(t, m.Deltas(put(11, wire.Delta{Change: wire.ChangePut, Entry: entry(1, 5)})))
	e := entry(1, 6)
	e.Epoch = 2
	require.NoError(t, m.Deltas(put(12, wire.Delta{Change: wire.ChangePut, Gone: 5, Entry: e})))
	require.Zero(t, m.Len())
}

// A map that was whole is whole until the next one begins, and what a flush has removed stays removed.
func TestWholeAndFlushed(t *testing.T) {
	m := New(Config{})
	m.Begin(&wire.Map{Epoch: 1, Seq: 10, Table: wire.Where{Addr: 1}})
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true}))
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10}))
	require.True(t, m.Whole())
	require.NoError(t, m.Deltas(put(11, wire.Delta{Change: wire.ChangeFlush, Gone: 9}, wire.Delta{Change: wire.ChangeFlush, Gone: 5})))
	p, ok := m.Probe(1)
	require.True(t, ok)
	require.Equal(t, 1, p.Buckets(), "of a table that has one")
	e := entry(1, 7)
	m.Adopt(p.Since(), &e)
	require.Zero(t, m.Len())
	m.Begin(&wire.Map{Epoch: 1, Seq: 20})
	require.False(t, m.Whole())
}

// The end of a READ of another life is not that of one of this life.
func TestSectionOfAnotherLife(t *testing.T) {
	m := started(Config{})
	before := m.Enter()
	m.Begin(&wire.Map{Epoch: 2, Seq: 3})
	now := m.Enter()
	m.Leave(before)
	require.NoError(t, m.Deltas(&wire.Deltas{Epoch: 2, First: 4, List: []wire.Delta{{Change: wire.ChangeFlush}}}))
	for range 3 {
		require.EqualValues(t, 3, m.Horizon().Quiet, "one is under way")
	}
	m.Leave(now)
	require.EqualValues(t, 4, m.Horizon().Quiet)
}

// What was flushed is not in the map and no hit, whether the flush came before or after the snapshot, and whatever the
// table still has.
func TestFlushedEntries(t *testing.T) {
	key := []byte("k")
	for _, before := range []bool{true, false} {
		m := New(Config{})
		b := wire.Map{Epoch: 1, Seq: 10}
		if before {
			b.Flushed = 5
		}
		m.Begin(&b)
		if !before {
			require.NoError(t, m.Deltas(&wire.Deltas{Epoch: 1, First: 11, List: []wire.Delta{{Change: wire.ChangeFlush, Gone: 5}}}))
		}
		for _, version := range []uint64{5, 6} {
			r := wire.Record{Version: version, Epoch: 1, Key: key, Fingerprint: 9}
			src := make([]byte, 128)
			wire.PutRecord(src, &r)
			wire.Publish(src)
			e := wire.Entry{Fingerprint: 9, Version: version, Epoch: 1, Place: wire.PlaceOf(0, 0, 128)}
			_, verdict := m.Judge(src, &e, key, 0)
			require.Equal(t, version > 5, verdict == Hit)
			require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: m.Applied(), Entries: []wire.Entry{e}}))
			require.Equal(t, version > 5, len(m.Lookup(9, nil)) > 0)
		}
	}
}
