package mirror

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

// bucket is one of a table of 1<<4, with an entry.
func bucket(p *Probe, i int, e ...wire.Entry) wire.Bucket {
	b := wire.Bucket(make([]byte, wire.BucketSize))
	b.Reset(p.depth, p.index[i], p.epoch)
	for k := range e {
		b.Set(k, e[k])
	}
	return b
}

// What a probe finds is kept, unless it may be gone by then: nothing would say so again.
func TestAdopt(t *testing.T) {
	const f = 0x9000_0000_0000_0001
	begin := func() (*Mirror, Probe) {
		m := New(Config{Budget: 4})
		_, ok := m.Probe(f)
		require.False(t, ok, "there is no map")
		m.Begin(&wire.Map{Epoch: 1, Seq: 10, Depth: 4})
		_, ok = m.Probe(f)
		require.False(t, ok, "the table cannot be READ")
		m.Begin(&wire.Map{Epoch: 1, Seq: 10, Depth: 4, Table: wire.Where{Addr: 1 << 20, Key: 3}})
		require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true}))
		p, ok := m.Probe(f)
		require.True(t, ok)
		require.Equal(t, 2, p.Buckets())
		return m, p
	}
	m, p := begin()
	e := entry(f, 7)
	found, err := p.Read(bucket(&p, 1, e, entry(8, 8)), 1, nil)
	require.NoError(t, err)
	require.Equal(t, []wire.Entry{e}, found)
	_, err = p.Read(bucket(&p, 1, e), 0, nil)
	require.ErrorIs(t, err, wire.Moved, "the other bucket")
	_, addr := p.At(1)
	require.Equal(t, uint64(1<<20)+uint64(p.index[1])*wire.BucketSize, addr)
	m.Adopt(p.Since(), &e)
	require.Equal(t, []wire.Entry{e}, m.Lookup(f, nil))

	other := wire.Delta{Change: wire.ChangeGone, Gone: 3, Entry: entry(1, 0)}
	for name, c := range map[string]struct {
		then []wire.Delta
		kept bool
	}{
		"others changed": {[]wire.Delta{other, other}, true},
		"removed":        {[]wire.Delta{other, {Change: wire.ChangeGone, Gone: 7, Entry: entry(f, 0)}}, false},
		"replaced":       {[]wire.Delta{{Change: wire.ChangePut, Gone: 7, Entry: entry(f, 9)}, other}, false},
		"flushed":        {[]wire.Delta{{Change: wire.ChangeFlush, Gone: 7}}, false},
		"flushed before": {[]wire.Delta{{Change: wire.ChangeFlush, Gone: 6}}, true},
		"long ago":       {slices.Repeat([]wire.Delta{other}, remembered+1), false},
		"not so long":    {slices.Repeat([]wire.Delta{other}, remembered), true},
	} {
		m, p := begin()
		require.NoError(t, m.Deltas(put(11, c.then...)))
		m.Adopt(p.Since(), &e)
		require.Equal(t, c.kept, m.Has(&e), name)
	}

	m, p = begin()
	m.Begin(&wire.Map{Epoch: 1, Seq: 12, Depth: 4, Table: p.table})
	m.Adopt(p.Since(), &e)
	require.False(t, m.Has(&e), "nobody knows what the deltas between were")
	m, p = begin()
	m.Begin(&wire.Map{Epoch: 2, Seq: 10, Depth: 4, Table: p.table})
	m.Adopt(p.Since(), &e)
	require.False(t, m.Has(&e), "another life of the server")
	m, p = begin()
	for v := range uint64(4) {
		m.Learn(entry(v, 20+v), 10)
	}
	require.True(t, m.Whole())
	m.Adopt(p.Since(), &e)
	require.True(t, m.Has(&e))
	require.Equal(t, 4, m.Len(), "another one goes")
	require.False(t, m.Whole())
	m.Adopt(p.Since(), &e)
	require.Equal(t, 4, m.Len())
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

// What READs bring that is of no use is counted by its reason.
func TestRefusalsOfReads(t *testing.T) {
	m := started(Config{})
	e := entry(5, 3)
	require.Equal(t, Next, m.JudgeRecord(&wire.Record{Version: 3}, wire.OtherKey, &e, 0))
	require.Equal(t, Ask, m.JudgeRecord(&wire.Record{Version: 4}, wire.OtherKey, &e, 0))
	require.Equal(t, Ask, m.JudgeRecord(&wire.Record{}, wire.Dead, &e, 0))
	require.Equal(t, uint64(2), m.Refused[wire.OtherKey])
	require.Equal(t, uint64(1), m.Refused[wire.Dead])
	require.Equal(t, uint64(3), m.Refused.Total())
}

// What a probe found before a snapshot may have been removed by a delta that did not come.
func TestAdoptAcrossASnapshot(t *testing.T) {
	m := New(Config{})
	m.Begin(&wire.Map{Epoch: 1, Seq: 9, Table: wire.Where{Addr: 1}})
	p, ok := m.Probe(5)
	require.True(t, ok)
	e := entry(5, 3)
	m.Begin(&wire.Map{Epoch: 1, Seq: 10, Table: wire.Where{Addr: 1}})
	m.Adopt(p.Since(), &e)
	require.Zero(t, m.Len())
	p, _ = m.Probe(5)
	m.Adopt(p.Since(), &e)
	require.Equal(t, 1, m.Len())
}

// What was found in another life of the server takes no entry's place.
func TestAdoptOfAnotherLife(t *testing.T) {
	m := New(Config{Budget: 1})
	m.Begin(&wire.Map{Epoch: 1, Seq: 10})
	e := entry(5, 3)
	m.Adopt(10, &e)
	other := entry(6, 4)
	other.Epoch = 2
	m.Adopt(10, &other)
	require.Equal(t, []wire.Entry{e}, m.Lookup(5, nil))
}

func TestChunkOfAnotherLife(t *testing.T) {
	m, e := started(Config{}), entry(5, 3)
	e.Epoch = 2
	require.NoError(t, m.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Entries: []wire.Entry{e, entry(6, 4), entry(7, 0)}}))
	require.Equal(t, 1, m.Len())
}
