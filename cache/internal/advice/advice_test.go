package advice

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleet is a server's load in virtual time.
type fleet struct {
	Advice
	now     time.Duration
	load    Load
	changes float64 // a second
	reads   float64
}

// until observes once in half a second until the advice is for probes or maps, and returns how long that took, or
// the longest time.
func (f *fleet) until(probes bool, longest time.Duration) time.Duration {
	begun := f.now
	for f.now-begun < longest && f.Probes() != probes {
		f.now += 500 * time.Millisecond
		f.load.Changes += uint64(f.changes / 2)
		f.load.Reads += uint64(f.reads / 2)
		f.Observe(f.now, f.load)
	}
	return f.now - begun
}

// stays requires that the advice stays the same for an hour.
func (f *fleet) stays(t *testing.T) {
	t.Helper()
	require.Equal(t, time.Hour, f.until(!f.Probes(), time.Hour), "of a stable load")
}

func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		clients        int
		changes, reads float64
		probes         bool
	}{
		"a quiet server":                       {1000, 1, 1e6, false},
		"few clients, many changes":            {4, 1e5, 1e3, false},
		"many clients, few changes":            {1000, 100, 1e3, false},
		"many clients and changes":             {1000, 1e5, 1e5, true},
		"a stream that the hits are worth":     {100, 1e5, 1e6, false},
		"the same clients when they READ less": {100, 1e5, 1e5, true},
		"no clients":                           {0, 1e6, 0, false},
	} {
		f := fleet{load: Load{Clients: c.clients, Records: 1000}, changes: c.changes, reads: c.reads}
		f.until(c.probes, time.Minute)
		require.Equal(t, c.probes, f.Probes(), name)
		f.stays(t)
	}
}

// Maps end soon when they cost too much, and begin late; short bursts change nothing.
func TestAdviceHasHysteresis(t *testing.T) {
	f := fleet{load: Load{Clients: 1000, Records: 1000}}
	f.until(true, time.Minute)
	f.changes = 1e5
	require.Equal(t, toProbes-window/10, f.until(true, toProbes-window/10), "a burst")
	f.changes = 0
	f.stays(t)
	f.changes = 1e5
	took := f.until(true, time.Hour)
	require.Greater(t, took, toProbes)
	require.Less(t, took, 3*toProbes)
	f.changes = 0
	require.Equal(t, toMaps-window, f.until(false, toMaps-window), "a pause")
	f.changes = 1e5
	f.until(false, time.Minute)
	require.True(t, f.Probes())
	f.changes = 0
	took = f.until(false, time.Hour)
	require.Greater(t, took, toMaps)
	require.Less(t, took, 3*toMaps)
}

// Between the load at which maps end and that at which they begin the advice is what it was.
func TestAdviceKeepsBetween(t *testing.T) {
	at := func(stream float64) float64 { return stream / deltaBytes / 1000 }
	f := fleet{load: Load{Clients: 1000, Records: 10}, changes: at(1.9 * Free)}
	f.stays(t)
	f.changes = at(2.2 * Free)
	f.until(true, time.Minute)
	require.True(t, f.Probes())
	f.changes = at(0.6 * Free)
	f.stays(t)
	require.True(t, f.Probes())
	f.changes = at(0.4 * Free)
	f.until(false, time.Hour)
	require.False(t, f.Probes())
}

// New maps are sent when hits are worth them: those of a large server are much, and its clients go on without as long
// as they READ little.
func TestNewMapsArePaidFor(t *testing.T) {
	f := fleet{load: Load{Clients: 1000, Records: 1e6}, changes: 1e5}
	f.until(true, time.Minute)
	require.True(t, f.Probes())
	f.changes, f.reads = 0, 1e5
	f.stays(t)
	require.True(t, f.Probes())
	f.reads = 5e6
	f.until(false, time.Hour)
	require.False(t, f.Probes())
	f.reads = 0
	f.stays(t)
	require.False(t, f.Probes(), "maps that are there cost nothing")
}

// Clients leave their maps together, and get maps one after the other.
func TestMoves(t *testing.T) {
	var a Advice
	require.Equal(t, []int{0, 1, 1, 2, 32}, []int{a.Moves(0), a.Moves(1), a.Moves(32), a.Moves(33), a.Moves(1000)})
	a.probes = true
	require.Equal(t, []int{0, 1, 1000}, []int{a.Moves(0), a.Moves(1), a.Moves(1000)})
}

// The load counts over the time between two looks, however it is spread in that, and the advice changes when that has
// lasted long enough.
func TestAdviceCountsWholeWindows(t *testing.T) {
	var a Advice
	l := Load{Clients: 1000}
	for now := time.Duration(0); now <= window+toProbes; now += window / 10 {
		if now%window == window/2 {
			l.Changes += 5e5 // all that there are in a window
		}
		require.Equal(t, now == window+toProbes, a.Observe(now, l), now)
	}
}

// At the very limits the advice stays.
func TestAdviceAtItsLimits(t *testing.T) {
	const k = 1e6
	l := Load{Clients: 1}
	maps, probes := Advice{}, Advice{probes: true}
	require.Equal(t, [2]bool{false, true}, [2]bool{maps.better(l, apart*probeBytes*k, deltaBytes*k), maps.better(l, apart*probeBytes*k+1, deltaBytes*k)})
	require.Equal(t, [2]bool{false, true}, [2]bool{probes.better(l, probeBytes*k, apart*deltaBytes*k), probes.better(l, probeBytes*k-1, apart*deltaBytes*k)})
}
