//go:build simhca && linux && cgo

package verbs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// deviceTime is how long the thread that simulates the devices has run.
func deviceTime(t testing.TB) time.Duration {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/comm")
	require.NoError(t, err)
	for _, comm := range tasks {
		if name, _ := os.ReadFile(comm); strings.TrimSpace(string(name)) != "simhca" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(comm), "schedstat"))
		require.NoError(t, err)
		var ns int64
		_, err = fmt.Sscan(string(stat), &ns)
		require.NoError(t, err)
		return time.Duration(ns)
	}
	t.Fatal("there is no such thread")
	return 0
}

// Devices that have nothing to do leave the CPU to others, whatever is open on them.
func TestSimulatedIdle(t *testing.T) {
	simulated(t, "mlx5")
	p := rig.Ports(t)
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	for range 100 {
		q, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: p[0].GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close()) })
	}
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	time.Sleep(20 * time.Millisecond)
	const watched = 500 * time.Millisecond
	before := deviceTime(t)
	time.Sleep(watched)
	used := deviceTime(t) - before
	t.Logf("%v in %v", used, watched)
	require.Less(t, used, watched/10)
}

// writer posts a WRITE of 8 bytes and polls until it has completed.
func writer(t testing.TB, cfg verbs.QPConfig) func() {
	x, y := rig.NewPair(t, cfg, verbs.CQConfig{}, verbs.ConnectConfig{})
	batch := x.Batch(t, 1)
	var wcs [1]verbs.WC
	return func() {
		batch.Write(1, verbs.Signaled, y.MR.Region().At(0), x.MR.SGE(0, 8))
		_, got, err := batch.PostPoll(x.CQ, wcs[:], 1000)
		for got == 0 && err == nil {
			got, err = x.CQ.PollSpin(wcs[:], 1000)
		}
		if err != nil || wcs[0].Err() != nil {
			t.Fatal(err, wcs[0].Err())
		}
	}
}

// A WRITE takes microseconds, though the host may be busy: in the best of some rounds,
// as the others may have been without a CPU. What a slow host takes for polling empty
// queues says how slow it is.
func TestSimulatedSpeed(t *testing.T) {
	simulated(t, "mlx5")
	_, idle := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	poll := func() {
		var wcs [1]verbs.WC
		if n, err := idle.CQ.Poll(wcs[:]); n > 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	const each = 200
	round := func(best *time.Duration, f func()) {
		begin := time.Now()
		for range each {
			f()
		}
		*best = min(*best, time.Since(begin)/each)
	}
	for _, cfg := range []verbs.QPConfig{{}, {Extended: true}} {
		write := writer(t, cfg)
		best, empty := time.Hour, time.Hour
		inTime := func() bool { return best < max(5*time.Microsecond, 12*empty) }
		for end, n := time.Now().Add(5*time.Second), 0; n < 50 || !inTime() && time.Now().Before(end); n++ {
			round(&empty, poll)
			round(&best, write)
		}
		t.Logf("%v; %v for an empty queue", best, empty)
		require.True(t, inTime())
	}
}

func BenchmarkSimulatedWrite(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  verbs.QPConfig
	}{{"plain", verbs.QPConfig{}}, {"extended", verbs.QPConfig{Extended: true}}} {
		b.Run(c.name, func(b *testing.B) {
			if !strings.Contains(os.Getenv("SIMHCA"), "mlx5") {
				b.Skip("needs SIMHCA=mlx5")
			}
			write := writer(b, c.cfg)
			before := deviceTime(b)
			for b.Loop() {
				write()
			}
			b.ReportMetric(float64(deviceTime(b)-before)/float64(b.Elapsed()), "device-cpu")
		})
	}
}
