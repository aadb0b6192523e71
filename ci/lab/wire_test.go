//go:build linux

package lab_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	// As a child in TestLeftovers: hold a device and wait to be ended.
	if os.Getenv("GOVERBS_HOLD") != "" {
		dev, err := verbs.Open(os.Getenv("GOVERBS_HOLD"), verbs.DeviceConfig{})
		if err != nil {
			panic(err)
		}
		if _, err := dev.AllocPD(); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("holding\n")
		os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

func ping(t *testing.T) time.Duration {
	t.Helper()
	var best time.Duration
	for i := range 5 {
		d, err := topo.PingUDP(topo.Addr(0), topo.Addr(1), 5*time.Second)
		require.NoError(t, err)
		if i == 0 || d < best {
			best = d
		}
	}
	return best
}

func TestEndpoints(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	require.Equal(t, lab.Endpoint{Device: "rxe0", Netdev: "h0", Addr: topo.Addr(0)}, ends[0])
	require.Equal(t, lab.Endpoint{Device: "rxe1", Netdev: "h1", Addr: topo.Addr(1)}, ends[1])
	require.Equal(t, []netip.Addr{topo.Addr(0), topo.Addr(1)}, lab.Addrs())
}

func TestDelay(t *testing.T) {
	lab.RequireTopology(t, "wire")
	require.Less(t, ping(t), 10*time.Millisecond)
	lab.ImpairWire(t, lab.Impairment{Delay: 20 * time.Millisecond})
	d := ping(t)
	require.GreaterOrEqual(t, d, 40*time.Millisecond, "both ways")
	require.Less(t, d, 80*time.Millisecond)
}

func TestImpairmentEndsWithItsTest(t *testing.T) {
	lab.RequireTopology(t, "wire")
	require.Less(t, ping(t), 10*time.Millisecond)
}

// arrived sends n datagrams, waits until at least so many have come out at the other
// interface, and returns how many there are soon after.
func arrived(t *testing.T, n, least int) int {
	t.Helper()
	before, err := lab.Counters("h1")
	require.NoError(t, err)
	var ends [2]*net.UDPConn
	for i := range ends {
		ends[i], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(topo.Addr(i), 0)))
		require.NoError(t, err)
		defer ends[i].Close()
	}
	for range n {
		_, err := ends[0].WriteTo([]byte("datagram"), ends[1].LocalAddr())
		require.NoError(t, err)
	}
	count := func() int {
		after, err := lab.Counters("h1")
		require.NoError(t, err)
		return int(after.RxPackets - before.RxPackets)
	}
	require.Eventually(t, func() bool { return count() >= least }, time.Minute, 10*time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	return count()
}

func TestLossAndDuplication(t *testing.T) {
	lab.RequireTopology(t, "wire")
	const n = 640 // an eighth is six standard deviations of a half
	require.NoError(t, lab.Impair("h0", lab.Impairment{Loss: 0.5}))
	defer lab.Clear("h0")
	require.InDelta(t, n/2, arrived(t, n, n/2-n/8), n/8)
	require.NoError(t, lab.Impair("h0", lab.Impairment{Duplicate: 1}))
	require.InDelta(t, 2*n, arrived(t, n, 2*n), n/8)
	require.NoError(t, lab.Impair("h0", lab.Impairment{Loss: 1}))
	require.Zero(t, arrived(t, 10, 0))
}

func TestReorderNeedsADelay(t *testing.T) {
	lab.RequireTopology(t, "wire")
	require.Error(t, lab.Impair("h0", lab.Impairment{Reorder: 0.5}))
	require.NoError(t, lab.Impair("h0", lab.Impairment{Reorder: 0.5, Delay: time.Millisecond, Corrupt: 0.01}))
	require.NoError(t, lab.Clear("h0"))
	require.NoError(t, lab.Clear("h0"), "twice")
	require.Error(t, lab.Clear("h7"))
}

// At 8 Mbit/s a megabyte takes a second.
func TestRateLimits(t *testing.T) {
	lab.RequireTopology(t, "wire")
	const size = 500_000
	transfer := func() time.Duration { return read(t, size) }
	free := transfer()
	require.NoError(t, lab.Impair("h1", lab.Impairment{Rate: 8_000_000}))
	limited := transfer()
	require.NoError(t, lab.Clear("h1"))
	require.Greater(t, limited, 450*time.Millisecond)
	require.Greater(t, limited, free)

	require.NoError(t, lab.LimitIngress("h0", 8_000_000))
	limited = transfer()
	require.NoError(t, lab.UnlimitIngress("h0"))
	require.Greater(t, limited, 350*time.Millisecond, "less the burst that passes at once")
	require.Less(t, transfer(), limited)
}

// read READs size bytes from rxe1 to rxe0 and returns how long the READ took.
func read(t *testing.T, size int) time.Duration {
	t.Helper()
	ends := lab.Require(t, 2)
	a, b := newEnd(t, ends[0], size), newEnd(t, ends[1], size)
	connect(t, a, b, verbs.ConnectConfig{AckTimeout: 2 * time.Second})
	return carry(t, a, func(batch *verbs.Batch) {
		batch.Read(1, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(0, size))
	})
}

func TestLeftovers(t *testing.T) {
	ends := lab.Require(t, 1)
	lab.NoLeftovers(t)
	dev, err := verbs.Open(ends[0].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	left, err := lab.Leftovers(ctx)
	require.NoError(t, err)
	kinds := make([]string, len(left))
	for i, r := range left {
		kinds[i] = r.Kind
	}
	require.Contains(t, kinds, "pd")
	require.NoError(t, pd.Close())
	require.NoError(t, dev.Close())

	// What another process holds is not ours, and goes when it is killed.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GOVERBS_HOLD="+ends[0].Device)
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 16))
	require.NoError(t, err)
	held := func() bool {
		all, err := topo.Resources()
		require.NoError(t, err)
		for _, r := range all {
			if topo.ThreadOf(r.PID, cmd.Process.Pid) {
				return true
			}
		}
		return false
	}
	require.True(t, held())
	require.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	require.Eventually(t, func() bool { return !held() }, time.Minute, 20*time.Millisecond)
}

// What "rdma resource" of iproute2 counts is what we list.
func TestResourcesAgreeWithIproute2(t *testing.T) {
	lab.RequireTopology(t, "wire")
	lab.Require(t, 2)
	out, err := exec.Command("rdma", "resource", "show", "pd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ours, err := topo.Resources()
	require.NoError(t, err)
	n := 0
	for _, r := range ours {
		if r.Kind == "pd" {
			n++
		}
	}
	require.Equal(t, strings.Count(string(out), " pid "), n)
}

// A WRITE to an added address crosses the wire, both on the first device that
// carries them and on the next.
// It is the last one, since what it makes stays.
func TestAddAddrs(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	far, err := lab.AddAddrs(300)
	require.NoError(t, err)
	require.Len(t, far, 300)
	require.NotEqual(t, far[0].Device, far[299].Device)
	for _, f := range []lab.Endpoint{far[0], far[24], far[25], far[299]} {
		require.NoError(t, topo.ProveWire("h0", topo.Addr(0), "h1", f.Addr))
		a, b := newEnd(t, ends[0], 64), newEnd(t, f, 64)
		connect(t, a, b, verbs.ConnectConfig{})
		before, err := lab.Counters("h1")
		require.NoError(t, err)
		copy(a.mr.Bytes(), f.Addr.String())
		carry(t, a, func(batch *verbs.Batch) {
			batch.Write(1, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(0, 64))
		})
		require.Equal(t, f.Addr.String(), string(b.mr.Bytes()[:len(f.Addr.String())]))
		after, err := lab.Counters("h1")
		require.NoError(t, err)
		require.Greater(t, after.RxPackets, before.RxPackets)
		require.Greater(t, after.TxPackets, before.TxPackets)
	}

	again, err := lab.Endpoints()
	require.NoError(t, err)
	require.Equal(t, ends, again)

	// The device below has the GIDs of all that is stacked on it, and can name no
	// more than 256 of them.
	dev, err := verbs.Open(ends[1].Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	defer dev.Close()
	gids, err := dev.GIDs()
	require.NoError(t, err)
	indexes := make(map[uint8]bool)
	for _, g := range gids {
		indexes[g.Index] = true
	}
	require.Equal(t, []int{256, 256}, []int{len(gids), len(indexes)})
}

// To impair a wire, or to end that, fails nothing that is under way. Soft-RoCE of
// Linux 6.12 gives up a queue pair if a device refused a packet of it.
func TestChangesUnderTraffic(t *testing.T) {
	lab.RequireTopology(t, "wire")
	lab.ImpairWire(t, lab.Impairment{})
	var changes sync.WaitGroup
	defer changes.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	changes.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			dev := []string{"h0", "h1"}[i%2]
			if err := lab.Impair(dev, lab.Impairment{Corrupt: 1e-9, Rate: 1e12}); err != nil {
				t.Error(err)
			}
			if err := lab.Clear(dev); err != nil {
				t.Error(err)
			}
		}
	})
	ends := lab.Require(t, 2)
	a, b := newEnd(t, ends[0], 4096), newEnd(t, ends[1], 4096)
	connect(t, a, b, verbs.ConnectConfig{})
	for start := time.Now(); time.Since(start) < time.Second; {
		carry(t, a, func(batch *verbs.Batch) {
			batch.Read(1, verbs.Signaled, b.mr.Region().At(0), a.mr.SGE(0, 4096))
		})
	}
	stop()
	changes.Wait()
	out, err := exec.Command("tc", "qdisc", "show", "dev", "h0").Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "rate")
	require.NotContains(t, string(out), "corrupt")
	require.NoError(t, lab.Restore("h0"))
	out, err = exec.Command("tc", "qdisc", "show", "dev", "h0").Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "netem")
}

// Bursts: most packets arrive, and those that do not come one after the other.
func TestBurst(t *testing.T) {
	lab.RequireTopology(t, "wire")
	require.Error(t, lab.Impair("h0", lab.Impairment{Burst: lab.Burst{Begin: 0.1}, Loss: 0.1}))
	require.NoError(t, lab.Impair("h0", lab.Impairment{Burst: lab.Burst{Begin: 0.02, End: 0.2}, Duplicate: 0.05}))
	defer func() { require.NoError(t, lab.Clear("h0")) }()
	out, err := exec.Command("tc", "qdisc", "show", "dev", "h0").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "loss gemodel p 2% r 20%")
	require.Contains(t, string(out), "duplicate 5%")
	require.Contains(t, string(out), "limit 10000")

	require.NoError(t, lab.Impair("h0", lab.Impairment{Delay: time.Millisecond, Burst: lab.Burst{Begin: 1, End: 1e-9}}))
	topo.PingUDP(topo.Addr(0), topo.Addr(1), 200*time.Millisecond) // the first packet makes the link bad
	_, err = topo.PingUDP(topo.Addr(0), topo.Addr(1), 200*time.Millisecond)
	require.Error(t, err, "a burst that does not end")
}
