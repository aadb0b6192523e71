//go:build linux

package main

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// The server outlives its clients, and they a wire that loses and doubles.
func TestRead(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serve(serving) }()
	from := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}
	at := net.JoinHostPort(ends[1].Addr.String(), port)
	require.Eventually(t, func() bool { _, err := read(ctx, from, at); return err == nil }, testTime, 50*time.Millisecond)
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.2, Burst: lab.Burst{Begin: 0.02, End: 0.3}})
	}
	for range 10 {
		require.NoError(t, persist(func() error {
			text, err := read(ctx, from, at)
			if err == nil {
				require.Equal(t, "the server's memory", text)
			}
			return err
		}))
	}
	stop()
	require.NoError(t, <-served)
}

const testTime = 10 * time.Second
