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

// Each question has its reply, on a wire that loses and doubles, too.
func TestAsk(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	host := ends[1].Addr.String()
	go func() { served <- serve(serving, host) }()
	from := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}
	require.Eventually(t, func() bool { _, err := ask(ctx, from, host, 1); return err == nil }, 10*time.Second, 50*time.Millisecond)
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.2, Loss: 0.05})
	}
	slowest, err := ask(ctx, from, host, 300)
	require.NoError(t, err)
	t.Log("slowest answer: ", slowest)
	stop()
	require.NoError(t, <-served)
}
