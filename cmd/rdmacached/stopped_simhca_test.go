//go:build simhca && linux && cgo

package main

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testproc"
)

// A process that sends may be stopped while it looks at the receiver's objects, which the receiver cannot change then.
// testproc.Stop does not leave it there.
func TestFabricStoppedElsewhere(t *testing.T) {
	inFabric(t)
	address, config := forOneDaemon(t)
	daemon, ended := startProcess(t, config)
	defer func() {
		_ = daemon.Kill()
		<-ended
	}()
	client := dialDaemon(t.Context(), t, address, cache.Config{RequireRDMA: true})
	defer client.Close()
	key, value := []byte("colour"), cache.Item{Value: make([]byte, 64<<10)}
	var load sync.WaitGroup
	defer load.Wait()
	over := make(chan struct{})
	defer close(over)
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = client.Set(t.Context(), key, value, 0)
				}
			}
		})
	}

	awaited := 0
	for begun := time.Now(); awaited < 3 && time.Since(begun) < time.Minute; {
		require.NoError(t, daemon.Signal(syscall.SIGSTOP))
		time.Sleep(2 * time.Millisecond)
		if simhca.Awaited(daemon.Pid) {
			awaited++
		}
		require.NoError(t, daemon.Signal(syscall.SIGCONT))
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, 3, awaited, "times that it was stopped where others wait")
	for range 100 {
		testproc.Stop(t, daemon)
		time.Sleep(time.Millisecond)
		require.False(t, simhca.Awaited(daemon.Pid))
		require.NoError(t, daemon.Signal(syscall.SIGCONT))
		time.Sleep(time.Millisecond)
	}
	require.False(t, simhca.Awaited(os.Getppid()), "of no process of the fabric")
}
