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
	"github.com/goverbs/goverbs/pacer"
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
	p, err := pacer.New(pacer.Config{Tune: true})
	require.NoError(t, err)
	for _, p := range []*pacer.Pacer{nil, p} {
		var bytes int64
		// The server gives up a link that a busy host does not make in [verbs.ExchangeTimeout].
		for again := true; again; again = errors.Is(err, syscall.ECONNRESET) && ctx.Err() == nil {
			bytes, err = compete(ctx, from, at, 1500*time.Millisecond, p)
		}
		require.NoError(t, err)
		require.Positive(t, bytes) // how much faster small READs are is for suite pacer to say
	}
	require.NoError(t, p.Close())
	stop()
	require.NoError(t, <-served)
}
