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
	require.NoError(t, m.Deltas(put(13, wire.Delta{Change: wire.ChangeFlush, Gone: 2}, wire.TableMoved(1, wire.Where{Addr: 4096, Key: 4}, 9))))
	require.Equal(t, []wire.Entry{entry(5, 4)}, m.Lookup(5, nil))
	p, ok := m.Probe(1 << 63)
	require.True(t, ok)
	rkey, addr := p.At(0)
	require.Equal(t, []uint64{4, 4096 + 256*wire.BucketSize}, []uint64{uint64(rkey), addr})
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
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true}))
	require.NoError(t, m.Deltas(put(11, wire.Delta{Change: wire.ChangePut, Entry: entry(0, 1)})))
	require.True(t, m.Whole(), "there is room for all")
	m.Learn(entry(1, 2), 10)
	require.Equal(t, 1, m.Len(), "the reply is older than the map")
	for f := range uint64(4) {
		m.Learn(entry(f, f+1), 11)
	}
	require.NoError(t, m.Deltas(put(12, wire.Delta{Change: wire.ChangePut, Entry: entry(5, 6)})))
	require.Equal(t, 4, m.Len())
	require.Empty(t, m.Lookup(5, nil), "there is no room: it learns from replies and buckets")
	require.False(t, m.Whole())
	m.Lookup(0, nil)
	m.Lookup(2, nil)
	m.Learn(entry(9, 9), 12)
	m.Learn(entry(10, 10), 12)
	require.Equal(t, 4, m.Len())
	require.Len(t, m.Lookup(0, nil), 1, "used entries stay")
	require.Len(t, m.Lookup(2, nil), 1)
	require.NoError(t, m.Deltas(put(13, wire.Delta{Change: wire.ChangePut, Gone: 1, Entry: entry(0, 20)})))
	require.Equal(t, []wire.Entry{entry(0, 20)}, m.Lookup(0, nil), "what it has changes")
	require.NoError(t, m.Deltas(put(14, wire.Delta{Change: wire.ChangeFlush, Gone: 20})))
	require.Zero(t, m.Len())
	require.True(t, m.Whole(), "there is nothing, and that is all")
	m = New(Config{Budget: 2})
	m.Begin(&wire.Map{Epoch: 1, Seq: 10})
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true, Entries: []wire.Entry{entry(1, 1), entry(2, 2), entry(3, 3)}}))
	require.False(t, m.Whole())
	require.Equal(t, 2, m.Len())
	m.Begin(&wire.Map{Epoch: 1, Seq: 10})
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true, Entries: []wire.Entry{entry(1, 1)}}))
	require.True(t, m.Whole(), "another snapshot, for which there is room")
}

// Expiry is judged by the latest that it can be at the server.
func TestClock(t *testing.T) {
	m := started(Config{})
	require.Greater(t, m.times.latest(0), uint64(1<<60), "nothing is known")
	m.Replied(5000, 100, 120)
	require.GreaterOrEqual(t, m.times.latest(120), uint64(5020))
	require.Less(t, m.times.latest(120), uint64(5023))
	require.GreaterOrEqual(t, m.times.latest(10340), uint64(15240+10), "clocks drift")
	m.Replied(5000, 100, 900) // took long, and says nothing new
	require.Equal(t, int64(100), m.times.asked)
	m.Replied(5010, 105, 900) // a later guess would be worse
	require.Equal(t, int64(100), m.times.asked)
	m.Replied(5700, 895, 900)
	require.Equal(t, int64(895), m.times.asked)
}

// A local clock that has stood still is found out: a record may have expired meanwhile.
func TestLocalClockStandsStill(t *testing.T) {
	m := started(Config{})
	m.Replied(5000, 100, 120)
	m.Told(5021, 120)
	m.Told(4000, 120)
	require.Equal(t, uint64(5021), m.times.latest(120), "that it can be")
	m.Told(605_000, 120) // after ten minutes
	require.Greater(t, m.times.latest(120), uint64(1<<60))
	m.Replied(605_100, 200, 210)
	require.Less(t, m.times.latest(210), uint64(605_115))
	m.Replied(905_000, 300, 310) // after five more, and the first to tell is a reply
	require.GreaterOrEqual(t, m.times.latest(310), uint64(905_010))
	require.Less(t, m.times.latest(310), uint64(905_015))
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
	m.Replied(4000, 0, 0)
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

// A record is there once if its entry came with a reply before its delta, and what it replaced is not.
func TestLearntBeforeItsDelta(t *testing.T) {
	m := started(Config{})
	m.Learn(entry(5, 3), 10)
	m.Learn(entry(5, 4), 11)
	require.Len(t, m.Lookup(5, nil), 2, "who has the key is not known here")
	require.NoError(t, m.Deltas(&wire.Deltas{Epoch: 1, First: 11, List: []wire.Delta{{Change: wire.ChangePut, Gone: 3, Entry: entry(5, 4)}}}))
	found := m.Lookup(5, nil)
	require.Len(t, found, 1)
	require.EqualValues(t, 4, found[0].Version)
	require.Equal(t, 1, m.Len())
}

// The entries are those of a plain map, whatever comes and goes, in 32 bytes each.
func TestSlots(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	var s slots
	type id struct{ f, v uint64 }
	want := map[id]uint64{}
	ordered := func() {
		for i := range s.s {
			if next := s.after(i); s.s[next].version != 0 && s.away(next) > 0 {
				require.NotZero(t, s.s[i].version, "nobody looks behind a gap")
				require.LessOrEqual(t, s.away(next), s.away(i)+1, "nor behind one that is nearer to its home")
			}
		}
	}
	for n := range uint64(8000) {
		if n%500 == 0 {
			ordered()
		}
		i := id{rng.Uint64N(3000) << 52, n%50 + 1}
		if n%5 == 4 {
			for w := range want {
				i = w
				break
			}
			to := id{i.f, rng.Uint64N(60) + 1}
			_, is := want[i]
			_, there := want[to]
			require.Equal(t, is && !there, s.replace(i.f, i.v, to.v, n))
			if is && !there {
				delete(want, i)
				want[to] = n
			}
		} else if rng.IntN(5) < 3 {
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
	n := s.n
	s.put(1, used|7, 1)
	require.Equal(t, n, s.n, "nor does it take a place")
	s.put(1, 1, 1)
	require.False(t, s.replace(1, 1, used|2, 1))
	require.False(t, s.replace(1, 1, 0, 1))
	require.GreaterOrEqual(t, s.find(1, 1), 0)
}

// A search for what is not there is short, also in a map that is nearly full.
func TestSearchIsShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	var s slots
	for s.n < 5000 || (s.n+1)*100 <= len(s.s)*maxLoad {
		s.put(rng.Uint64(), 1, 1)
	}
	longest := 0
	for i := range s.s {
		if s.s[i].version != 0 {
			longest = max(longest, s.away(i))
		}
	}
	require.Less(t, longest, len(s.s)/20)
	seen := 0
	const searches = 2000
	for range searches {
		f := rng.Uint64()
		i := s.home(f)
		for d := 0; s.s[i].version != 0 && s.away(i) >= d; d++ {
			i = s.after(i)
			seen++
		}
		require.Equal(t, -1, s.first(f))
	}
	require.Less(t, seen/searches, 12)
}

// A map that is alone has no entries, and keeps none of what READs and replies find; nothing else may follow. READs
// that began before it, or between two of them, hold up its horizon as ever, and what was flushed is no hit.
func TestMapThatIsAlone(t *testing.T) {
	m := started(Config{})
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Entries: []wire.Entry{entry(5, 1)}, Last: true}))
	require.True(t, m.Whole())
	section := m.Enter()
	alone := &wire.Map{Epoch: 1, Seq: 20, Depth: 4, Table: wire.Where{Addr: 1 << 20, Key: 3}, Flushed: 7, Alone: true}
	m.Begin(alone)
	require.True(t, m.Alone())
	require.False(t, m.Whole())
	require.Empty(t, m.Lookup(5, nil))
	require.Equal(t, wire.Horizon{Epoch: 1, Applied: 20, Quiet: 10}, m.Horizon())
	m.Leave(section)
	require.Equal(t, wire.Horizon{Epoch: 1, Applied: 20, Quiet: 20}, m.Horizon())
	section = m.Enter()
	m.Learn(entry(5, 30), 20)
	e := entry(6, 31)
	m.Adopt(20, &e)
	require.Zero(t, m.Len())
	require.ErrorIs(t, m.Deltas(put(21)), ErrGap)
	require.ErrorIs(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 20}), ErrGap)
	p, ok := m.Probe(1 << 63)
	require.True(t, ok)
	_, addr := p.At(0)
	require.EqualValues(t, 1<<20+8*wire.BucketSize, addr)
	e = entry(6, 7)
	require.Equal(t, Ask, m.JudgeRecord(&wire.Record{}, nil, &e, 0))

	alone.Seq, alone.Table.Addr, alone.Depth = 25, 1<<30, 5
	m.Begin(alone)
	p, ok = m.Probe(1 << 63)
	require.True(t, ok)
	_, addr = p.At(0)
	require.EqualValues(t, 1<<30+16*wire.BucketSize, addr)
	require.Equal(t, wire.Horizon{Epoch: 1, Applied: 25, Quiet: 20}, m.Horizon())
	m.Leave(section)
	require.Equal(t, wire.Horizon{Epoch: 1, Applied: 25, Quiet: 25}, m.Horizon())

	m.Begin(&wire.Map{Epoch: 1, Seq: 30})
	require.False(t, m.Alone())
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 30, Entries: []wire.Entry{entry(5, 40)}, Last: true}))
	require.True(t, m.Whole())
	require.Len(t, m.Lookup(5, nil), 1)
}
