//go:build linux

package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
)

func TestFlowsTakeDifferentPaths(t *testing.T) {
	lab.RequireTopology(t, "ecmp")
	lab.NoLeftovers(t)
	before, err := lab.PathPackets()
	require.NoError(t, err)
	for range 16 { // each has queue pairs of its own, and so ports of its own
		read(t, 20_000)
	}
	after, err := lab.PathPackets()
	require.NoError(t, err)
	used := 0
	for i := range after {
		if after[i] > before[i] {
			used++
		}
	}
	require.Greater(t, used, 1, "packets per path: %v then %v", before, after)
}

func TestOnePathImpaired(t *testing.T) {
	lab.RequireTopology(t, "ecmp")
	const pings = 130
	lost := func(timeout time.Duration) int {
		n := 0
		for range pings { // a new port each time, so another path
			if _, err := topo.PingUDP(topo.Addr(0), topo.Addr(1), timeout); err != nil {
				n++
			}
		}
		return n
	}
	const patient = 10 * time.Second // a busy machine loses nothing, it is late
	require.Zero(t, lost(patient))
	require.NoError(t, lab.Blackhole(1))
	n := lost(100 * time.Millisecond)
	require.NoError(t, lab.ClearPath(1))
	// A quarter on average, 32, with a deviation of 5, as the kernel's hash sends a
	// flow the same way in both directions; 57, if it did not.
	require.Greater(t, n, 6)
	require.Less(t, n, 91)
	require.Zero(t, lost(patient))
}
