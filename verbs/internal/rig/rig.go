//go:build linux

// Package rig has what device tests of verbs and of the packages beside it build
// on: the ports of the lab, two connected ends, and what closed objects must
// return.
package rig

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Port is a device with a GID that the tests can use: what FindGID chooses, which
// on InfiniBand and EFA is no IP address.
type Port struct {
	Name string
	GID  verbs.GIDEntry
}

// Ports finds two ports that reach each other: those of the lab's wire, or of
// a machine that has RDMA devices of its own (one device then talks to
// itself). Without any the test is skipped, except in the lab, where they must
// be there.
func Ports(t testing.TB) [2]Port {
	t.Helper()
	lab.NoLeftovers(t)
	list, err := verbs.Devices()
	if err != nil {
		Missing(t, "no rdma-core: %v", err)
	}
	var found []Port
	for _, info := range list {
		if want := os.Getenv("RDMA_DEVICE"); want != "" && want != info.Name {
			continue
		}
		d, err := verbs.Open(info.Name, verbs.DeviceConfig{})
		require.NoError(t, err)
		p, err := d.Port(1)
		require.NoError(t, err)
		gid, err := d.FindGID(verbs.GIDQuery{Port: 1})
		require.NoError(t, d.Close())
		if err == nil && p.State == verbs.PortActive && (gid.GID.Addr().Is4() || !lab.In()) {
			found = append(found, Port{info.Name, gid})
		}
	}
	switch len(found) {
	case 0:
		Missing(t, "no RDMA device with an active port and a GID: run in the lab (make lab)")
	case 1:
		found = append(found, found[0])
	}
	return [2]Port{found[0], found[1]}
}

// Missing skips a test that lacks something which in the lab must be there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if lab.In() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Addr is the IP address of a port in the lab.
func (p Port) Addr() netip.Addr { return p.GID.GID.Addr() }

// NeedAddresses skips a test that finds its peer by IP address where the GIDs
// are none.
func NeedAddresses(t testing.TB, p [2]Port) [2]Port {
	t.Helper()
	for _, q := range p {
		if !q.Addr().Is4() {
			Missing(t, "the GID of %s is no IPv4 address: %v", q.Name, q.GID)
		}
	}
	return p
}

// DialFrom comes from the address of a port.
func DialFrom(p Port) *net.Dialer {
	return &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Addr(), 0))}
}

// Context ends with the test, or after [Timeout].
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	return ctx
}
