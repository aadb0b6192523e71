//go:build simhca && linux && cgo

package cache_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
)

// simulated returns a server on a simulated device that is closed with the test.
func simulated(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	cfg.Device, cfg.Memory = "mlx5_1", 4<<20
	s, err := server.Listen(t.Context(), "127.0.0.1:0", cfg)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context()) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-served
	})
	return s
}

// A client whose address leads to another server of the same cluster, with the same key, is told which one it is,
// and does not use it.
func TestSimulatedOtherServer(t *testing.T) {
	key := []byte("key of the cluster")
	s := simulated(t, server.Config{Key: key})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(o, c); o.Close() }()
			go func() { _, _ = io.Copy(c, o); c.Close() }()
		}
	}()
	_, err = cache.Dial(within(t), l.Addr().String(), cache.Config{Key: key})
	require.ErrorIs(t, err, cache.ErrDenied)
	require.ErrorContains(t, err, `the server is "`+s.Addr().String()+`", and not "`+l.Addr().String()+`"`)
	c, err := cache.Dial(within(t), s.Addr().String(), cache.Config{Key: key})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
