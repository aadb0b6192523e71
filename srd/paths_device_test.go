//go:build linux

package srd_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// All four paths are used, and a dead one does not show for long.
func TestPaths(t *testing.T) {
	lab.RequireTopology(t, "ecmp")
	var a, b *srd.Endpoint
	var q *srd.SendQueue
	used := 0
	for try := 0; used < 4 && try < 5; try++ { // by chance the ports of 16 queue pairs may all lead past one of four ways
		a, b = pair(t, srd.Config{Paths: 16})
		collect(t, b, false)
		var err error
		q, err = a.NewQueue(srd.QueueConfig{})
		require.NoError(t, err)
		before, err := lab.PathPackets()
		require.NoError(t, err)
		stream(t, q, b.Addr(), 1000, 32, 1000)
		after, err := lab.PathPackets()
		require.NoError(t, err)
		used = 0
		for i := range after {
			if after[i]-before[i] > 20 {
				used++
			}
		}
		t.Logf("packets by path: %v, then %v; %+v", before, after, a.Peers())
	}
	require.Equal(t, 4, used)
	oneByOne := func() (median, p99 time.Duration) {
		var took []time.Duration
		for range 300 {
			start := time.Now()
			stream(t, q, b.Addr(), 1, 1, 64)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took[150], took[297]
	}
	healthy, healthyLate := oneByOne()
	require.NoError(t, lab.Blackhole(1))
	t.Cleanup(func() { require.NoError(t, lab.ClearPath(1)) })
	stream(t, q, b.Addr(), 500, 32, 1000)
	dead, deadLate := oneByOne()
	t.Logf("median %v, 99 %% %v; with a dead path %v and %v; %+v", healthy, healthyLate, dead, deadLate, a.Stats())
	require.Less(t, deadLate, max(100*time.Millisecond, 8*dead, 2*healthyLate), "a guest on a busy host is slow as a whole, with all paths too")
}

// Each path has its own UDP source port: by the flow label of its own way to the peer's
// port, but on Soft-RoCE, where it has it by its queue pair, and on EFA.
func TestSourcePorts(t *testing.T) {
	a, b := pair(t, srd.Config{Paths: 6})
	defer collect(t, b, false)()
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	stream(t, q, b.Addr(), 300, 32, 1000)
	labels := a.Labels(b.Addr())
	if len(simulated) == 0 || onEFA {
		require.Equal(t, []uint32{0}, labels)
		return
	}
	ports := make(map[uint16]bool)
	for _, l := range labels {
		require.NotZero(t, l)
		ports[verbs.UDPSourcePort(l)] = true
	}
	require.Len(t, ports, 6)
}
