package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseProxy(t *testing.T) {
	c, err := parseProxy([]string{"-server", "10.77.0.2:7481", "-from", "10.77.0.1", "-timeout", "50ms"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:11211", c.listen, "nobody else's by default")
	require.Equal(t, "10.77.0.1", c.from.String())
	require.Equal(t, 50*time.Millisecond, c.timeout)
	c, err = parseProxy([]string{"-server", "x", "-tenant", "red", "-key", "f", "-map", "64KiB", "-max", "8MiB", "-rdma", "-metrics", "127.0.0.1:9482"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, proxyConfig{"x", "127.0.0.1:11211", c.from, time.Second, "red", "f", "127.0.0.1:9482", 64 << 10, 8 << 20, true}, c)
	for _, args := range [][]string{{}, {"-server", "x", "-map", "64kB"}, {"-server", "x", "-max", "-1"}, {"-server", "x", "more"}, {"-server", "x", "-timeout", "0s"}, {"-server", "x", "-from", "here"}, {"-sever", "x"}} {
		_, err := parseProxy(args, io.Discard)
		require.Error(t, err, "%q", args)
	}
}

// A proxy with an empty key file does not do without a key.
func TestProxyWithAnEmptyKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorContains(t, proxy(ctx, proxyConfig{servers: "127.0.0.1:1", key: file}, slog.New(slog.DiscardHandler), nil), "no key")
}

// Commands have at least the timeout and at most an eighth more, also if they share a context.
func TestTimeoutOfCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &remote{timeout: 800 * time.Millisecond}
		first := r.limited(ctx)
		var last context.Context
		for range 2000 {
			last = r.limited(ctx)
			end, ok := last.Deadline()
			require.True(t, ok)
			require.GreaterOrEqual(t, time.Until(end), r.timeout)
			require.LessOrEqual(t, time.Until(end), r.timeout*9/8)
			time.Sleep(time.Millisecond)
		}
		require.ErrorIs(t, first.Err(), context.DeadlineExceeded)
		require.NoError(t, last.Err())
		require.NoError(t, r.limited(t.Context()).Err())
		cancel()
		require.ErrorIs(t, last.Err(), context.Canceled)
		require.ErrorIs(t, r.limited(ctx).Err(), context.Canceled)
	})
}

// A socket that was left behind is taken over, and nothing else.
func TestListenLocal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := listenLocal(t.Context(), path)
	require.NoError(t, err)
	_, err = listenLocal(t.Context(), path)
	require.Error(t, err, "somebody answers there")
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, first.Close())
	second, err := listenLocal(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = listenLocal(t.Context(), path)
	require.Error(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))
}
