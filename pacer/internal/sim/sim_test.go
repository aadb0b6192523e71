package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var large = flag.String("large", "", "`folder` for a table of the simulation of 1,000 requesters and 64 servers, which takes ten seconds; empty means a small one, and no table")

// A thousand requesters and 64 servers, 48 B requests and 2,048 B responses: with a
// threshold the links are as busy or busier, nothing is dropped, and hardly anything
// waits in the switch.
func TestThousandRequesters(t *testing.T) {
	c := Config{Duration: time.Millisecond, Seed: 3}
	if *large == "" { // a tenth of the requesters, and of their servers' speed
		c.Requesters, c.Duration = 100, 250*time.Microsecond
	}
	const threshold = 24 << 10
	way := func(name string, threshold int64, tune bool) Result {
		c := c
		c.Threshold, c.Tune = threshold, tune
		start := time.Now()
		r, err := Run(c)
		require.NoError(t, err)
		t.Logf("%s: goodput %.3f of the links, p50 %v, p99 %v, probe p50 %v p99 %v, queue p50 %d p99 %d max %d B, %d of %d responses dropped, fairness %.4f (%v)", name,
			r.Goodput, r.P50, r.P99, r.Probe50, r.Probe99, r.Queue50, r.Queue99, r.QueueMax, r.Dropped, r.Responses, r.Fairness, time.Since(start).Round(time.Second))
		return r
	}
	unpaced, paced, tuned := way("unpaced", 0, false), way("paced", threshold, false), way("tuned", 0, true)
	require.Positive(t, unpaced.Dropped)
	require.Greater(t, paced.Goodput, unpaced.Goodput*0.97)
	for _, r := range []Result{paced, tuned} {
		require.Zero(t, r.Dropped)
		require.LessOrEqual(t, r.QueueMax, int64(threshold))
		require.Less(t, r.Probe99, unpaced.Probe99/2)
		require.Greater(t, r.Fairness, 0.98)
	}
	if *large != "" {
		write(t, filepath.Join(*large, "pacer-incast.csv"), unpaced, paced, tuned)
	}
}

// write writes what waits in the switch's port to one of the requesters, as a table that
// ci/bench/draw makes a plot of.
func write(t *testing.T, path string, results ...Result) {
	var table strings.Builder
	table.WriteString("us,\"KiB that wait in the switch for one requester: unpaced\",\"paced, threshold 24 KiB\",\"paced, threshold found\"\n")
	for i, r := range results {
		step := max(len(r.Queue)/800, 1)
		for j := 0; j < len(r.Queue); j += step {
			fmt.Fprintf(&table, "%g%s%g%s\n", float64(r.Queue[j].At)/1e3, strings.Repeat(",", i+1), float64(r.Queue[j].Bytes)/1024, strings.Repeat(",", 2-i))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(table.String()), 0o644))
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
