package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/canceltest"
)

// Calls under a context that has ended already do nothing, and can be made again.
func TestCancelledBefore(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Listen(over, "127.0.0.1:0", Config{Device: "none"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = ListenTenants(over, "127.0.0.1:0", nil, nil)
	require.ErrorIs(t, err, context.Canceled)

	all, err := ListenTenants(t.Context(), "127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	canceltest.Methods(t, all, []any{&Tenant{Name: "shop", Key: make([]byte, 16)}})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- all.Serve(ctx) }()
	conn, err := net.Dial("tcp", all.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write(make([]byte, 4096)) // no greeting
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, conn)
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, all.Close())

	s, _ := tablesRig(t, func(int) error { return nil })
	canceltest.Methods(t, s, []any{&kv.Request{Op: kv.OpDelete, Key: []byte("key")}})
	require.NoError(t, s.Close())
}
