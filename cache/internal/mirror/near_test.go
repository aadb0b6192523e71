package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// A copy may be used while the map has its entry and the server was heard: no later than what was
// promised after any change.
func TestHolds(t *testing.T) {
	m, e := started(Config{SampleEvery: 1}), entry(5, 3)
	m.Learn(e, 10)
	m.Replied(1000, 0, 0)
	const bound = 100
	holds := func(now int64) bool { return m.Holds(&e, 0, now, bound) }
	require.False(t, holds(0), "the server has told of nothing")
	heard := func(clock uint64) {
		require.NoError(t, m.Deltas(&wire.Deltas{Epoch: 1, First: m.applied + 1, Clock: clock}))
	}
	heard(1000)
	require.True(t, holds(0))
	require.True(t, holds(98))
	require.False(t, holds(99), "the server's clock may be 1100")
	require.Equal(t, uint64(100), m.Age(99))
	heard(1050)
	require.True(t, holds(140))
	heard(1040)
	require.True(t, holds(140), "what was heard was heard")
	require.False(t, m.Holds(&e, 1120, 119, bound), "it may have expired")
	require.True(t, m.Holds(&e, 1120, 118, bound))

	// All that one message holds is perhaps not all.
	full := &wire.Deltas{Epoch: 1, First: m.applied + 1, Clock: 1090, List: make([]wire.Delta, wire.MaxEntries)}
	for i := range full.List {
		full.List[i] = wire.Delta{Change: wire.ChangeGone, Gone: 1, Entry: entry(9, 0)}
	}
	require.NoError(t, m.Deltas(full))
	require.False(t, holds(150))
	heard(1090)
	require.True(t, holds(150))

	var r wire.Report
	m.Report(&r)
	require.Contains(t, r.Accesses, wire.Access{Fingerprint: 5, Version: 3}, "hits are hits")
	m.Report(&r)
	require.NoError(t, m.Deltas(put(m.applied+1, wire.Delta{Change: wire.ChangePut, Gone: 3, Entry: entry(5, 4)})))
	heard(1200)
	require.False(t, holds(150), "another record took its place")
	require.False(t, m.Has(&e))
	e = entry(5, 4)
	require.True(t, m.Has(&e))
	require.True(t, holds(150))

	// Another life of the server has another clock.
	m.Begin(&wire.Map{Epoch: 2, Seq: 1})
	m.Replied(7, 150, 150)
	e.Epoch = 2
	m.Learn(e, 1)
	require.False(t, holds(150))
	require.False(t, New(Config{}).Holds(&e, 0, 0, bound))
}
