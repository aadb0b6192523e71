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

// On a wire that loses bursts of packets clients come back and go on, and no
// count is lost that was acknowledged.
func TestCountOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	far, err := lockhost.Open(ends[1].Device)
	require.NoError(t, err)
	near, err := lockhost.Open(ends[0].Device)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	go func() { served <- lockhost.Serve(serving, l, far, layout, 500*time.Millisecond) }()
	for _, e := range ends {
		require.NoError(t, lab.Impair(e.Netdev, lab.Impairment{Duplicate: 0.05, Burst: lab.Burst{Begin: 0.005, End: 0.1}}))
		defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
	}
	var out strings.Builder
	dial := func() (*lockhost.Client, error) { return lockhost.Dial(ctx, near, l.Addr().String()) }
	err = count(ctx, &out, dial, 3, 10)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	stop()
	require.NoError(t, <-served)
}
