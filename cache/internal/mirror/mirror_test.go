package mirror

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

func started(cfg Config) *Mirror {
	m := New(cfg)
	m.Begin(&wire.Map{Epoch: 1, Seq: 10})
	return m
}

func entry(f, v uint64) wire.Entry {
	return wire.Entry{Fingerprint: f, Version: v, Place: wire.Place(v), Epoch: 1}
}

func put(first uint64, d ...wire.Delta) *wire.Deltas {
	return &wire.Deltas{Epoch: 1, First: first, List: d}
}

func TestLookup(t *testing.T) {
	m := started(Config{})
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Entries: []wire.Entry{entry(5, 1), entry(5, 2), entry(6, 3)}}))
	require.Equal(t, []wire.Entry{entry(5, 1), entry(5, 2)}, m.Lookup(5, nil))
	require.Empty(t, m.Lookup(7, nil))
	require.NoError(t, m.Deltas(put(11, wire.Delta{Change: wire.ChangePut, Gone: 1, Entry: entry(5, 4)}, wire.Delta{Change: wire.ChangeGone, Gone: 3, Entry: entry(6, 0)})))
	require.ElementsMatch(t, []wire.Entry{entry(5, 2), entry(5, 4)}, m.Lookup(5, nil))
	require.Empty(t, m.Lookup(6, nil))
	require.False(t, m.Whole())
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 12, Last: true}))
	require.True(t, m.Whole())
	require.NoError(t, m.Deltas(put(13, wire.Delta{Change: wire.ChangeFlush, Gone: 2}, wire.Delta{Change: wire.ChangeTable, Gone: 9, Entry: wire.Entry{Place: wire.PlaceOf(4, 0, 0)}})))
	require.Equal(t, []wire.Entry{entry(5, 4)}, m.Lookup(5, nil))
	region, depth := m.Table()
	require.Equal(t, []int{4, 9}, []int{int(region), depth})
}

func TestGap(t *testing.T) {
	m := New(Config{})
	require.ErrorIs(t, m.Deltas(put(1)), ErrGap, "no snapshot yet")
	require.ErrorIs(t, m.Chunk(&wire.Chunk{Epoch: 1}), ErrGap)
	m = started(Config{})
	d := put(11, wire.Delta{Change: wire.ChangePut, Entry: entry(5, 1)}, wire.Delta{Change: wire.ChangeGone, Gone: 1, Entry: entry(5, 0)}, wire.Delta{Change: wire.ChangePut, Entry: entry(6, 2)})
	require.NoError(t, m.Deltas(d))
	d.List = append(d.List, wire.Delta{Change: wire.ChangePut, Entry: entry(7, 3)})
	require.NoError(t, m.Deltas(d), "what was applied is passed over")
	require.NoError(t, m.Deltas(&wire.Deltas{Epoch: 1, First: 11, List: d.List[:1]}))
	require.Empty(t, m.Lookup(5, nil))
	require.Len(t, m.Lookup(7, nil), 1)
	require.ErrorIs(t, m.Deltas(&wire.Deltas{Epoch: 2, First: 15}), wire.OtherEpoch)
	require.Equal(t, 2, m.Len())
	require.ErrorIs(t, m.Deltas(put(16)), ErrGap)
	require.Zero(t, m.Len())
	require.ErrorIs(t, m.Deltas(put(15)), ErrGap, "until the next snapshot")

	m = started(Config{})
	require.ErrorIs(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 9}), ErrGap, "it may have what deltas removed")
	m = started(Config{})
	require.ErrorIs(t, m.Chunk(&wire.Chunk{Epoch: 2, Seq: 10}), wire.OtherEpoch)
	require.NotZero(t, m.Refused[wire.OtherEpoch])
}

func TestPartial(t *testing.T) {
	m := started(Config{Budget: 4})
	require.NoError(t, m.Deltas(put(11, wire.Delta{Change: wire.ChangePut, Entry: entry(1, 1)})))
	require.Zero(t, m.Len(), "a partial map learns from replies")
	m.Learn(entry(1, 1), 10)
	require.Zero(t, m.Len(), "the reply is older than the map")
	for f := range uint64(4) {
		m.Learn(entry(f, f+1), 11)
	}
	m.Lookup(0, nil)
	m.Lookup(2, nil)
	m.Learn(entry(9, 9), 11)
	m.Learn(entry(10, 10), 11)
	require.Equal(t, 4, m.Len())
	require.Len(t, m.Lookup(0, nil), 1, "used entries stay")
	require.Len(t, m.Lookup(2, nil), 1)
	require.NoError(t, m.Deltas(put(12, wire.Delta{Change: wire.ChangePut, Gone: 1, Entry: entry(0, 20)})))
	require.Equal(t, []wire.Entry{entry(0, 20)}, m.Lookup(0, nil), "what it has changes")
}

// A horizon is behind every READ that is under way.
func TestHorizon(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	m := started(Config{})
	type open struct {
		s       Section
		applied uint64
	}
	var all []open
	last := uint64(10)
	for range 5000 {
		switch rng.IntN(4) {
		case 0:
			last++
			require.NoError(t, m.Deltas(put(last, wire.Delta{Change: wire.ChangeFlush})))
		case 1:
			all = append(all, open{m.Enter(), last})
		case 2:
			if len(all) > 0 {
				i := rng.IntN(len(all))
				m.Leave(all[i].s)
				all = append(all[:i], all[i+1:]...)
			}
		default:
			h := m.Horizon()
			require.Equal(t, last, h.Applied)
			for _, o := range all {
				require.LessOrEqual(t, h.Quiet, o.applied)
			}
			if len(all) == 0 {
				require.Equal(t, last, h.Quiet, "nothing is under way")
			}
		}
	}
	s := m.Enter()
	m.Begin(&wire.Map{Epoch: 2, Seq: 3})
	m.Leave(s)
	require.Equal(t, wire.Horizon{Epoch: 2, Applied: 3, Quiet: 3}, m.Horizon())
}

// Expiry is judged by the latest that it can be at the server.
func TestClock(t *testing.T) {
	m := started(Config{})
	require.Greater(t, m.times.latest(0), uint64(1<<60), "nothing is known")
	m.Answered(5000, 100, 120)
	require.GreaterOrEqual(t, m.times.latest(120), uint64(5020))
	require.Less(t, m.times.latest(120), uint64(5023))
	require.GreaterOrEqual(t, m.times.latest(10340), uint64(15240+10), "clocks drift")
	m.Answered(5000, 100, 900) // took long, and says nothing new
	require.Equal(t, int64(100), m.times.asked)
	m.Answered(5010, 105, 900) // a later guess would be worse
	require.Equal(t, int64(100), m.times.asked)
	m.Answered(5700, 895, 900)
	require.Equal(t, int64(895), m.times.asked)
}

func TestJudge(t *testing.T) {
	m := started(Config{SampleEvery: 1})
	r := wire.Record{Version: 3, Epoch: 1, Key: []byte("k"), Value: []byte("v"), Expiry: 5000}
	b := make([]byte, 200)
	wire.PutRecord(b, &r)
	wire.Publish(b)
	e := entry(5, 3)
	_, v := m.Judge(b, &e, []byte("k"), 0)
	require.Equal(t, Ask, v, "nobody knows what time it is")
	m.Answered(4000, 0, 0)
	got, v := m.Judge(b, &e, []byte("k"), 990)
	require.Equal(t, Hit, v)
	require.Equal(t, "v", string(got.Value))
	_, v = m.Judge(b, &e, []byte("k"), 1000)
	require.Equal(t, Ask, v)
	_, v = m.Judge(b, &e, []byte("other"), 0)
	require.Equal(t, Next, v)
	m.Learn(e, 10)
	require.Len(t, m.Lookup(5, nil), 1)
	wire.Bury(b)
	_, v = m.Judge(b, &e, []byte("k"), 0)
	require.Equal(t, Ask, v)
	require.Empty(t, m.Lookup(5, nil), "what was no use is forgotten")

	var rep wire.Report
	m.Report(&rep)
	require.Equal(t, []wire.Access{{Fingerprint: 5, Version: 3}}, rep.Accesses)
	m.Report(&rep)
	require.Empty(t, rep.Accesses)
}

// The entries are those of a plain map, whatever comes and goes, in 32 bytes each.
func TestSlots(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	var s slots
	type id struct{ f, v uint64 }
	want := map[id]uint64{}
	for n := range uint64(8000) {
		i := id{rng.Uint64N(3000) << 52, n%50 + 1}
		if rng.IntN(5) < 3 {
			i.f |= rng.Uint64() >> 12
			s.put(i.f, i.v, n)
			want[i] = n
		} else {
			for w := range want {
				i = w
				break
			}
			_, ok := want[i]
			require.Equal(t, ok, s.remove(i.f, i.v))
			delete(want, i)
		}
	}
	require.Equal(t, len(want), s.n)
	for i, place := range want {
		at := s.find(i.f, i.v)
		require.GreaterOrEqual(t, at, 0)
		require.Equal(t, place, s.s[at].place)
	}
	for len(s.s) < 1<<14 {
		s.put(rng.Uint64(), 1, 1)
	}
	require.LessOrEqual(t, float64(len(s.s)*slotBytes)/float64(s.n), 32.0)
	s.put(1, used, 1)
	require.Equal(t, -1, s.find(1, used), "a version of a hostile server")
}

func TestHitDoesNotAllocate(t *testing.T) {
	m := started(Config{})
	m.Answered(1, 0, 0)
	r := wire.Record{Version: 3, Epoch: 1, Key: []byte("k"), Value: make([]byte, 64)}
	b := make([]byte, 200)
	wire.PutRecord(b, &r)
	wire.Publish(b)
	f := m.Fingerprint(r.Key)
	m.Learn(entry(f, 3), 10)
	found := make([]wire.Entry, 0, 4)
	key := []byte("k")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s := m.Enter()
		found = m.Lookup(m.Fingerprint(key), found[:0])
		_, v := m.Judge(b, &found[0], key, 0)
		m.Leave(s)
		if v != Hit {
			t.Fatal(v)
		}
	}))
}
