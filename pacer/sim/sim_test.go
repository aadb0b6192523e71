package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A thousand requesters and 64 servers, 48 B requests and 2,048 B responses: with a
// threshold the links are as busy or busier, nothing is dropped, and hardly anything
// waits in the switch.
func TestThousandRequesters(t *testing.T) {
	c := Config{Duration: 2 * time.Millisecond, Seed: 3}
	if testing.Short() { // a tenth of the requesters, and of their servers' speed
		c.Requesters, c.Duration = 100, 250*time.Microsecond
	}
	unpaced, err := Run(c)
	require.NoError(t, err)
	c.Threshold = 48 << 10
	paced, err := Run(c)
	require.NoError(t, err)
	for name, r := range map[string]Result{"unpaced": unpaced, "paced": paced} {
		t.Logf("%s: goodput %.3f of the link, p50 %v, p99 %v, probe p50 %v p99 %v, queue p50 %d p99 %d max %d B, %d of %d responses dropped, fairness %.4f", name,
			r.Goodput, r.P50, r.P99, r.Probe50, r.Probe99, r.Queue50, r.Queue99, r.QueueMax, r.Dropped, r.Responses, r.Fairness)
	}
	require.Positive(t, unpaced.Dropped)
	require.Zero(t, paced.Dropped)
	require.LessOrEqual(t, paced.QueueMax, int64(48<<10))
	require.Less(t, paced.Probe99, unpaced.Probe99/2)
	require.Greater(t, paced.Goodput, unpaced.Goodput*0.97)
	require.Greater(t, paced.Fairness, 0.98)
}

// The same seed is the same simulation.
func TestRepeats(t *testing.T) {
	c := Config{Requesters: 20, Servers: 4, Duration: time.Millisecond, Seed: 9, Tune: true}
	a, err := Run(c)
	require.NoError(t, err)
	b, err := Run(c)
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Positive(t, a.Completed)
}
