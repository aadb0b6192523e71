package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

func TestHitDoesNotAllocate(t *testing.T) {
	m := started(Config{})
	m.Replied(1, 0, 0)
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

// A map without a budget forgets nothing, and one with a budget keeps to it, also when all of its
// entries are in use.
func TestLearnAndBudget(t *testing.T) {
	all := started(Config{})
	for f := range uint64(20) {
		all.Learn(entry(f, f+1), 10)
	}
	require.Equal(t, 20, all.Len())
	require.NoError(t, all.Chunk(&wire.Chunk{Epoch: 1, Seq: 10, Last: true}))
	require.True(t, all.Whole())
	m := started(Config{Budget: 4})
	for f := range uint64(10) {
		m.Learn(entry(f, f+1), 10)
		require.LessOrEqual(t, m.Len(), 4)
		for g := range f + 1 {
			m.Lookup(g, nil)
		}
		require.Len(t, m.Lookup(f, nil), 1, "what was learnt last")
	}
	m.Learn(entry(9, 10), 10)
	require.Len(t, m.Lookup(9, nil), 1)
	require.Equal(t, 4, m.Len())
}

// Of hits one in so many is told of, whichever it is: keys that take turns have their share.
func TestSample(t *testing.T) {
	m := started(Config{SampleEvery: 16})
	told := map[uint64]int{}
	var r wire.Report
	for i := range uint64(64_000) {
		e := entry(i%16, 1)
		require.Equal(t, Hit, m.JudgeRecord(&wire.Record{Version: 1}, nil, &e, 0))
		if i%1000 == 999 {
			m.Report(&r)
			require.EqualValues(t, 1000, r.Hits)
			for _, a := range r.Accesses {
				told[a.Fingerprint]++
			}
		}
	}
	require.Len(t, told, 16)
	for f, n := range told {
		require.InDelta(t, 64_000/16/16, n, 125, f)
	}
}

// A report has the number of all hits since the last one that had any, however many more than its sample there
// were.
func TestHitsAreReported(t *testing.T) {
	m := started(Config{SampleEvery: 16})
	e := entry(5, 1)
	var r wire.Report
	hit := func() { require.Equal(t, Hit, m.JudgeRecord(&wire.Record{Version: 1}, nil, &e, 0)) }
	reported := uint64(0)
	for n := range uint64(100) {
		hit()
		if m.Report(&r); len(r.Accesses) > 0 {
			reported += r.Hits
			require.Equal(t, n+1, reported)
		}
	}
	require.Positive(t, reported)
	for range 10 * maxSample * 16 {
		hit()
	}
	m.Report(&r)
	require.Len(t, r.Accesses, maxSample)
	require.EqualValues(t, 100+10*maxSample*16, reported+r.Hits)
}

// Of two entries the one goes that was not used.
func TestWhatIsUsedStays(t *testing.T) {
	for stays := range uint64(2) {
		m := started(Config{Budget: 2})
		m.Learn(entry(0, 1), 10)
		m.Learn(entry(1<<63, 1), 10)
		require.Len(t, m.Lookup(stays<<63, nil), 1)
		m.Learn(entry(1<<62, 1), 10)
		require.Len(t, m.Lookup(stays<<63, nil), 1)
		require.Empty(t, m.Lookup((1-stays)<<63, nil))
	}
}
