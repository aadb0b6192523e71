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

// The sum stays while connections are cut in the middle of transfers.
func TestBank(t *testing.T) {
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	far, err := lockhost.Open(ends[1].Device)
	require.NoError(t, err)
	near, err := lockhost.Open(ends[0].Device)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- lockhost.Serve(serving, l, far, layout, time.Second) }()
	var out strings.Builder
	dial := func() (*lockhost.Client, error) { return lockhost.Dial(ctx, near, l.Addr().String()) }
	d, err := open(ctx, &out, dial, 4, 10*time.Second)
	t.Log(out.String())
	require.NoError(t, err)
	require.NotZero(t, d.transfers.Load())
	require.NotZero(t, d.cut.Load())
	require.NotZero(t, d.audits.Load())
	stop()
	require.NoError(t, <-served)
}
