//go:build linux

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// hosts makes a target on one device, and a way to dial it from the other.
func hosts(t *testing.T, ctx context.Context, ends []lab.Endpoint, lease time.Duration) (*lockoffload.Listener, func(bool) (*lockoffload.Client, error)) {
	var pds [2]*verbs.PD
	for i, e := range ends {
		dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
		require.NoError(t, err)
		pds[i], err = dev.AllocPD()
		require.NoError(t, err)
	}
	target, err := lockoffload.Listen(pds[1], "127.0.0.1:0", lockoffload.ListenConfig{Layout: layout, Key: key, Lease: lease})
	require.NoError(t, err)
	return target, func(noAgent bool) (*lockoffload.Client, error) {
		return lockoffload.Dial(ctx, pds[0], target.Addr().String(), lockoffload.DialConfig{Key: key, NoAgent: noAgent})
	}
}

// Counts are exact, and the forms that are mixed are those that it says.
func TestCount(t *testing.T) {
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	target, dial := hosts(t, ctx, ends, 2*time.Second)
	var out strings.Builder
	require.NoError(t, count(ctx, &out, dial, 4, 20))
	t.Log("\n" + out.String())
	for _, form := range []string{"two steps", "agent", "pointer swap"} {
		require.Contains(t, out.String(), form)
	}
	require.NoError(t, count(ctx, &out, dial, 1, 1))
	require.Contains(t, out.String(), "from 400 to 405")
	require.NoError(t, target.Close())
}

// On a wire that loses bursts of packets clients come back and go on, and no
// count is lost that was acknowledged.
func TestCountOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	target, dial := hosts(t, ctx, ends, 500*time.Millisecond)
	for _, e := range ends {
		require.NoError(t, lab.Impair(e.Netdev, lab.Impairment{Duplicate: 0.05, Burst: lab.Burst{Begin: 0.005, End: 0.1}}))
		defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
	}
	var out strings.Builder
	err := count(ctx, &out, dial, 3, 10)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	require.NoError(t, target.Close())
}
