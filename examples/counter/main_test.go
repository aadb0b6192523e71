//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// together has clients of a target on another device count at the same time, and checks what
// they have counted.
func together(t *testing.T, ends []lab.Endpoint, lease time.Duration, clients, times int) (unknown int) {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	var pds [2]*verbs.PD
	for i, e := range ends {
		dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
		require.NoError(t, err)
		pds[i], err = dev.AllocPD()
		require.NoError(t, err)
	}
	target, err := lockoffload.Listen(pds[1], "127.0.0.1:0", lockoffload.ListenConfig{Layout: layout, Key: key, Lease: lease})
	require.NoError(t, err)
	defer func() { require.NoError(t, target.Close()) }()
	// A host that is too busy for a handshake in the time that it may take does it again.
	dial := func() (c *lockoffload.Client) {
		for again := true; again; again = errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			c, err = lockoffload.Dial(ctx, pds[0], target.Addr().String(), lockoffload.DialConfig{Key: key})
		}
		require.NoError(t, err)
		return c
	}
	var all errgroup.Group
	unknowns := make([]int, clients)
	for i := range clients {
		c := dial()
		all.Go(func() (err error) {
			last, n, err := count(ctx, c, times)
			assert.NotZero(t, last)
			unknowns[i] = n
			c.Close() // its connection may be broken
			return err
		})
	}
	require.NoError(t, all.Wait())
	for _, n := range unknowns {
		unknown += n
	}
	c := dial()
	require.NoError(t, c.Retry(ctx, func() error {
		record, _, err := c.Read(ctx, 0, make([]byte, layout.Size))
		if err == nil {
			got := int(number(record))
			t.Logf("%d, with %d unknown", got, unknown)
			require.LessOrEqual(t, got, clients*times)
			require.GreaterOrEqual(t, got, clients*times-unknown)
		}
		return err
	}))
	c.Close()
	return unknown
}

// Counts are exact.
func TestCount(t *testing.T) {
	require.Zero(t, together(t, lab.Require(t, 2), 0, 4, 100))
}

// On a wire that loses bursts of packets clients come back and go on, and no
// count is lost that was acknowledged.
func TestCountOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	for _, e := range ends {
		require.NoError(t, lab.Impair(e.Netdev, lab.Impairment{Duplicate: 0.05, Burst: lab.Burst{Begin: 0.005, End: 0.1}}))
		defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
	}
	together(t, ends, 500*time.Millisecond, 3, 50)
}
