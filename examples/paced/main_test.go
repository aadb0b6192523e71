//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// Behind a slow link both kinds of READs go on, without the pacer and with it.
func TestPaced(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serve(serving) }()
	if lab.In() {
		require.NoError(t, lab.LimitIngressQueue("h0", 40e6, 64<<10))
		t.Cleanup(func() { require.NoError(t, lab.UnlimitIngress("h0")) })
	}
	from := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}
	at := net.JoinHostPort(ends[1].Addr.String(), port)
	require.Eventually(t, func() bool {
		c, err := from.Dial("tcp", at)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, 10*time.Second, 50*time.Millisecond)
	// The server gives up a link that a busy host does not make in [verbs.ExchangeTimeout].
	var without, with result
	var err error
	for again := true; again; again = errors.Is(err, syscall.ECONNRESET) && ctx.Err() == nil {
		without, with, err = compare(ctx, from, at, 1500*time.Millisecond)
	}
	require.NoError(t, err)
	t.Log("without: ", without)
	t.Log("with: ", with)
	// How much more it is with the pacer is for suite pacer to say.
	require.Positive(t, without.bytes)
	require.Positive(t, with.bytes)
	stop()
	require.NoError(t, <-served)
}
