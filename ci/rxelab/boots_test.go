//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Guests boot on a host that has other things to do: RXELAB_BOOTS of them, both
// kernels in turn, three at a time beside four busy loops. How many had to be
// booted once more is told.
func TestBootsOnABusyHost(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("RXELAB_BOOTS"))
	if n == 0 {
		t.Skip("takes a minute for each ten boots: set RXELAB_BOOTS to a number of boots, as make torture does")
	}
	program := launcherOnce(t)
	const busy, atOnce = 4, 3
	for range busy {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, loop.Start())
		t.Cleanup(func() { loop.Process.Kill(); loop.Wait() })
	}
	var next, booted, again atomic.Int64
	var longest time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				series := []string{"6.1", "6.12"}[i%2]
				start := time.Now()
				cmd := exec.Command(program, "-timeout", "1h", "-kernel", series, "true")
				var said bytes.Buffer
				cmd.Stderr = &said
				if err := cmd.Run(); err != nil {
					t.Errorf("boot %d, Linux %s: %v\n%s", i, series, err, &said)
					continue
				}
				if done := booted.Add(1); done%10 == 0 {
					t.Logf("%d booted", done)
				}
				if bytes.Contains(said.Bytes(), []byte("booted once more")) {
					again.Add(1)
					t.Logf("boot %d, Linux %s:\n%s", i, series, &said)
				}
				mu.Lock()
				longest = max(longest, time.Since(start))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d guests booted, %d of them at the second try; %d busy loops and %d guests at a time on %d CPUs; the slowest took %v",
		booted.Load(), n, again.Load(), busy, atOnce, runtime.NumCPU(), longest.Round(time.Second))
}
