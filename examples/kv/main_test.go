//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Clients see each other's PUTs as soon as the server has replied, and never half of
// one, on a wire that loses and doubles packets too.
func TestClients(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	l, err := net.Listen("tcp", net.JoinHostPort(ends[1].Addr.String(), "0"))
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- serve(serving, l) }()
	cfg := verbs.LinkConfig{Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}}
	connect := func() client {
		c, err := dial(ctx, l.Addr().String(), cfg)
		require.NoError(t, err)
		return c
	}

	c, d := connect(), connect()
	_, err = c.get(ctx, "colour")
	require.ErrorContains(t, err, "no ")
	require.NoError(t, c.put(ctx, "colour", "blue"))
	value, err := d.get(ctx, "colour")
	require.NoError(t, err)
	require.Equal(t, "blue", value)
	require.Error(t, c.put(ctx, "long", strings.Repeat("x", size)))
	require.Error(t, c.put(ctx, "", "no key"))

	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.1, Burst: lab.Burst{Begin: 0.01, End: 0.5}})
	}
	require.NoError(t, c.put(ctx, "n", strings.Repeat("0,", 60)))
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range 60 {
			assert.NoError(t, c.put(ctx, "n", strings.Repeat(fmt.Sprint(n%10, ","), 60)))
		}
	})
	for range 60 {
		value, err := d.get(ctx, "n")
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(value[:2], 60), value)
	}
	wg.Wait()

	stop()
	require.NoError(t, <-served)
	require.ErrorIs(t, c.put(ctx, "colour", "red"), verbs.WCFlushed, "the server is gone")
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}
