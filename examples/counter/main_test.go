//go:build linux

package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/examples/internal/lockhost"
)

// Counts are exact, and the forms that are mixed are those that it says.
func TestCount(t *testing.T) {
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	far, err := lockhost.Open(ends[1].Device)
	require.NoError(t, err)
	near, err := lockhost.Open(ends[0].Device)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- lockhost.Serve(serving, l, far, layout, 2*time.Second) }()
	var out strings.Builder
	dial := func() (*lockhost.Client, error) { return lockhost.Dial(ctx, near, l.Addr().String()) }
	require.NoError(t, count(ctx, &out, dial, 4, 20))
	t.Log("\n" + out.String())
	for _, form := range []string{"two steps", "agent", "pointer swap"} {
		require.Contains(t, out.String(), form)
	}
	require.NoError(t, count(ctx, &out, dial, 1, 1))
	require.Contains(t, out.String(), "from 400 to 405")
	stop()
	require.NoError(t, <-served)
}
