package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Mellanox/rdmamap"

	"github.com/goverbs/goverbs/ci/topo"
)

// Endpoints lists the RDMA devices of this host that lie on an interface which
// is up and has an IPv4 address, in the order of their names. $RDMA_DEVICE
// names the only one wanted. The list is made once. In a fabric of simulated devices it
// has those of this process.
var Endpoints = sync.OnceValues(endpoints)

func endpoints() ([]Endpoint, error) {
	if inFabric() {
		return simulated()
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []Endpoint
	for _, i := range ifaces {
		// Asking rdmamap takes a second on an emulated machine: it reads the
		// whole GID table by files.
		a, ok := ipv4(i)
		if !ok || i.Flags&(net.FlagUp|net.FlagLoopback) != net.FlagUp {
			continue
		}
		dev, err := rdmamap.GetRdmaDeviceForNetdevice(i.Name)
		if want := os.Getenv("RDMA_DEVICE"); err != nil || want != "" && want != dev {
			continue
		}
		out = append(out, Endpoint{dev, i.Name, a})
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return strings.Compare(a.Device, b.Device) })
	return out, nil
}

func ipv4(i net.Interface) (netip.Addr, bool) {
	addrs, _ := i.Addrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// Impair sets what the packets that leave through an interface suffer, in
// place of what they suffered before; tests clear it when they end.
func Impair(dev string, i Impairment) error { return topo.Impair(dev, i) }

// Clear ends the impairment of an interface; what was under way still arrives.
func Clear(dev string) error { return topo.Clear(dev) }

// Restore is Clear where nothing is under way, and leaves nothing that packets would
// have to go through: see [topo.Restore].
func Restore(dev string) error { return topo.Restore(dev) }

// ImpairWire impairs both directions between h0 and h1 until the test ends.
func ImpairWire(t testing.TB, i Impairment) {
	t.Helper()
	for _, dev := range []string{"h0", "h1"} {
		if err := topo.Impair(dev, i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := topo.Clear(dev); err != nil {
				t.Error(err)
			}
		})
	}
}

// LimitIngress limits what an interface receives, in bits per second.
func LimitIngress(dev string, bitsPerSecond int64) error {
	return topo.LimitIngress(dev, bitsPerSecond)
}

// LimitIngressQueue is LimitIngress with a queue of so many bytes, beyond which packets
// are lost.
func LimitIngressQueue(dev string, bitsPerSecond int64, queue int) error {
	return topo.LimitIngressQueue(dev, bitsPerSecond, queue)
}

// UnlimitIngress ends it.
func UnlimitIngress(dev string) error { return topo.UnlimitIngress(dev) }

// ImpairPath impairs one path of "ecmp" in both directions.
func ImpairPath(path int, i Impairment) error { return topo.ImpairPath(path, i) }

// Blackhole makes a path of "ecmp" lose everything.
func Blackhole(path int) error { return topo.ImpairPath(path, Impairment{Loss: 1}) }

// ClearPath ends the impairment of a path.
func ClearPath(path int) error { return topo.ClearPath(path) }

// PathPackets counts the packets on each path of "ecmp" so far.
func PathPackets() ([]uint64, error) {
	c, err := topo.PathCounters()
	return c[:], err
}

// Counters returns the packet counters of an interface.
func Counters(dev string) (topo.Counters, error) { return topo.ReadCounters(dev) }

// Resource is an RDMA object that a process holds.
type Resource = topo.Resource

// Leftovers lists the RDMA objects that this process holds, as the kernel sees
// it, beyond those of before. Soft-RoCE destroys some of them a moment after
// the call that asked for it, so they are given until the context ends to go
// away.
func Leftovers(ctx context.Context, before ...Resource) ([]Resource, error) {
	for {
		all, err := topo.Resources()
		if err != nil {
			return nil, err
		}
		known := make(map[Resource]int)
		for _, r := range before {
			r.PID = 0 // threads come and go
			known[r]++
		}
		mine := slices.DeleteFunc(all, func(r Resource) bool {
			if r.PID != 0 && !topo.ThreadOf(r.PID, os.Getpid()) {
				return true
			}
			r.PID = 0
			known[r]--
			return known[r] >= 0
		})
		if len(mine) == 0 || ctx.Err() != nil {
			return mine, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// NoLeftovers fails the test if this process holds more RDMA objects when the
// test ends than now: librdmacm keeps the devices open that it has used. Call
// it first, so that everything else is cleaned up before it looks.
func NoLeftovers(t testing.TB) {
	t.Helper()
	now, stop := context.WithCancel(context.Background())
	stop()
	before, _ := Leftovers(now) // an error shows again at the end
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		left, err := Leftovers(ctx, before...)
		if err != nil {
			t.Errorf("list RDMA resources: %v", err)
		}
		if len(left) > 0 {
			t.Errorf("left behind: %s", fmt.Sprint(left))
		}
	})
}
