//go:build simhca && linux && cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/internal/testproc"
	"github.com/goverbs/goverbs/verbs"
)

const fabricConfig = "RDMACACHED_TEST_CONFIG"

// TestFabricProcess is rdmacached in a process of its own, if it is told so.
func TestFabricProcess(t *testing.T) {
	if os.Getenv(fabricConfig) == "" {
		t.Skip("for the tests that start rdmacached in processes")
	}
	require.NoError(t, start(untilSignal(), os.Getenv(fabricConfig), false, nil))
}

// inFabric skips a test of several processes on devices that do not reach each other.
func inFabric(t *testing.T) {
	t.Helper()
	if !strings.Contains(os.Getenv("SIMHCA"), "@") {
		t.Skip("needs SIMHCA=mlx5@NAME")
	}
}

// forOneDaemon returns an address that is free, and the configuration of a server that listens there.
func forOneDaemon(t *testing.T) (address string, config []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	address = l.Addr().String()
	return address, fmt.Appendf(nil, `{"listen": %q, "memory": "8MiB", "lease": "1m"}`, address)
}

// dialDaemon returns a client of a server that is about to listen.
func dialDaemon(ctx context.Context, t *testing.T, address string, cfg cache.Config) (client *cache.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		client, err = cache.Dial(ctx, address, cfg)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return client
}

// startProcess starts rdmacached with a configuration, in a process that does not outlive the test program. It
// returns the process, and the channel that has its end.
func startProcess(t *testing.T, config []byte, env ...string) (*os.Process, <-chan error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdmacached.json")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	c := exec.Command(os.Args[0], "-test.run=^TestFabricProcess$", "-test.timeout=5m")
	c.Env = append(append(os.Environ(), fabricConfig+"="+file), env...)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	ended, err := testproc.Start(c)
	require.NoError(t, err)
	return c.Process, ended
}

// A client in one process, and rdmacached in another one, on the first addresses of lo: hits are
// READs, also while the daemon is stopped; it is killed, and another one takes its place.
func TestFabricDaemonIsKilled(t *testing.T) {
	inFabric(t)
	address, config := forOneDaemon(t)
	begin := func() *os.Process {
		p, ended := startProcess(t, config)
		t.Cleanup(func() {
			_ = p.Kill()
			<-ended
		})
		return p
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	daemon := begin()
	client := dialDaemon(ctx, t, address, cache.Config{})
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
	testproc.Stop(t, daemon)
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

// -check finds a device by its name, and an error has the names of all.
func TestFabricCheckOfTheDevice(t *testing.T) {
	inFabric(t)
	devices, err := verbs.Devices()
	require.NoError(t, err)
	c := config{Device: devices[0].Name}
	require.NoError(t, c.checkDevice())
	c.Device = "none"
	require.ErrorContains(t, c.checkDevice(), "["+devices[0].Name)
}

// A server joins when all else that may fail has not, since others would find a member that ends only after a TTL. A
// membership without an id is refused.
func TestFabricJoinsLast(t *testing.T) {
	inFabric(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := config{Listen: "127.0.0.1:0", Memory: 8 << 20, Metrics: taken.Addr().String(), Cluster: &clusterConfig{}}
	require.ErrorContains(t, run(t.Context(), &c, slog.New(slog.DiscardHandler), nil, nil), "metrics: ")
	require.NoError(t, taken.Close())
	require.ErrorContains(t, run(t.Context(), &c, slog.New(slog.DiscardHandler), nil, nil), "cluster: ")
	taken, err = net.Listen("tcp", c.Metrics)
	require.NoError(t, err, "it is closed")
	require.NoError(t, taken.Close())
}
