//go:build simhca && linux && cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
)

const fabricConfig = "RDMACACHED_TEST_CONFIG"

// TestFabricProcess is rdmacached in a process of its own, if it is told so.
func TestFabricProcess(t *testing.T) {
	if os.Getenv(fabricConfig) == "" {
		t.Skip("for TestFabricDaemonIsKilled")
	}
	require.NoError(t, start(context.Background(), os.Getenv(fabricConfig), false, nil))
}

// A client in one process, and rdmacached in another one, on the first addresses of lo: hits are
// READs, also while the daemon is stopped; it is killed, and another one takes its place.
func TestFabricDaemonIsKilled(t *testing.T) {
	if !strings.Contains(os.Getenv("SIMHCA"), "@") {
		t.Skip("needs SIMHCA=mlx5@NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	file := filepath.Join(t.TempDir(), "rdmacached.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"listen": %q, "memory": "8MiB", "lease": "1m"}`, address), 0o600))
	begin := func() *os.Process {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFabricProcess$", "-test.timeout=1m")
		c.Env, c.Stderr = append(os.Environ(), fabricConfig+"="+file), os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		return c.Process
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	daemon := begin()
	var client *cache.Client
	require.Eventually(t, func() bool {
		client, err = cache.Dial(ctx, address, cache.Config{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	defer client.Close()
	key, value := []byte("colour"), cache.Item{Value: []byte("blue")}
	hit := func() {
		t.Helper()
		require.Eventually(t, func() bool { return client.Stats().Whole && client.Stats().Entries == 1 }, time.Minute, time.Millisecond)
		before := client.Stats()
		it, err := client.Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "blue", string(it.Value))
		require.Equal(t, before.Reads+1, client.Stats().Reads, "by READ")
		require.Equal(t, before.Calls, client.Stats().Calls)
	}
	require.NoError(t, client.Set(ctx, key, value, 0))
	hit()
	require.NoError(t, daemon.Signal(syscall.SIGSTOP))
	hit()
	require.NoError(t, daemon.Kill()) // kill -9
	require.Eventually(t, func() bool { return !client.Stats().Connected }, time.Minute, time.Millisecond)
	begin()
	require.Eventually(t, func() bool {
		_, err := client.Get(ctx, key)
		return errors.Is(err, cache.ErrNotFound)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, client.Set(ctx, key, value, 0))
	hit()
	require.EqualValues(t, 2, client.Stats().Sessions)
}
