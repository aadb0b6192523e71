// Package lab is for programs and tests that run inside the lab (ci/rxelab), or
// on a machine that has RDMA devices of its own: it lists the devices,
// impairs the network between them, kills and starts hosts, and finds RDMA
// objects that were left behind.
package lab

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/ci/topo"
)

// ErrOutside: the call makes sense inside the lab only.
var ErrOutside = errors.New("not inside the lab: start the program with rxelab")

// In reports whether this process runs inside the lab.
func In() bool { return Topology() != "" }

// Topology is "wire", "ecmp", "hosts" or "none", and empty outside the lab.
func Topology() string { return os.Getenv("LAB_TOPOLOGY") }

// Clock is "wall", "instructions", "instructions-4ns" or "instructions-2ns"; outside the lab
// it is "wall".
func Clock() string {
	if c := os.Getenv("LAB_CLOCK"); c != "" {
		return c
	}
	return "wall"
}

// Self returns the number of this host among Hosts, from 0.
func Self() int { return number("LAB_HOST", 0) }

// Hosts returns how many hosts the lab has.
func Hosts() int { return number("LAB_HOSTS", 1) }

func number(name string, def int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return def
	}
	return n
}

// Addrs returns the addresses of the lab: of both ends of the wire, or of all
// hosts.
func Addrs() []netip.Addr {
	var out []netip.Addr
	for _, s := range strings.Split(os.Getenv("LAB_ADDRS"), ",") {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// Impairment is what a link does to packets; see [topo.Impairment].
type Impairment = topo.Impairment

// Burst is how a link loses packets in bursts; see [topo.Burst].
type Burst = topo.Burst

// Endpoint is an RDMA device and the interface under it.
type Endpoint struct {
	Device string
	Netdev string
	Addr   netip.Addr
}

// Require returns n endpoints of this host, or skips the test with the reason.
// Inside the lab they must exist.
func Require(t testing.TB, n int) []Endpoint {
	t.Helper()
	list, err := Endpoints()
	if err == nil && len(list) >= n {
		return list[:n]
	}
	if In() {
		t.Fatalf("the lab (%s) has %d endpoints on this host, want %d: %v", Topology(), len(list), n, err)
	}
	t.Skipf("needs %d RDMA devices with addresses, found %d: run in the lab", n, len(list))
	return nil
}

// RequireTopology skips the test unless it runs in the lab with that topology.
func RequireTopology(t testing.TB, name string) {
	t.Helper()
	if Topology() != name {
		t.Skipf("needs the lab's topology %s, this is %q: rxelab -topo %s", name, Topology(), name)
	}
}

// RequireHosts skips the test unless it runs in the lab with at least n hosts.
func RequireHosts(t testing.TB, n int) {
	t.Helper()
	RequireTopology(t, "hosts")
	if Hosts() < n {
		t.Skipf("needs %d hosts of the lab, there are %d: rxelab -topo hosts=%d", n, Hosts(), n)
	}
}
