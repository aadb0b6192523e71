//go:build linux

package yourmodule

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
)

// The test runs on two devices of any kind: in the lab, simulated ones, or this host's. Without
// them it is skipped.
func TestBoard(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[1].Addr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- Serve(serving, l, "hello") }()

	b, err := Dial(ctx, &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	read := func() {
		t.Helper()
		if text, err := b.Text(ctx); err != nil || text != "hello" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	read()
	if lab.In() { // a wire that can be made worse
		lab.ImpairWire(t, lab.Impairment{Delay: time.Millisecond, Loss: 0.01})
		for range 20 {
			read()
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
}

func TestLongText(t *testing.T) {
	if err := Serve(t.Context(), nil, string(make([]byte, Size+1))); err == nil {
		t.Fatal("it does not fit")
	}
}
