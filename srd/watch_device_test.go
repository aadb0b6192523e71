//go:build linux

package srd_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// An endpoint finds its GID again when it has moved to another place of the table, whether
// there is nothing at the old place or another GID. It takes no new endpoint.
func TestGIDHasMoved(t *testing.T) {
	if len(simulated) == 0 || onEFA {
		t.Skip("needs SIMHCA=mlx5,mlx5: the kernel keeps the old place for handles that have it")
	}
	es := ends(t)
	for _, stale := range []uint8{200, 1} {
		b := open(t, es[1], srd.Config{})
		a := openAt(t, es[0], srd.Config{}, func(g *verbs.GIDEntry) { g.Index = stale })
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")), "index %d", stale)
		require.NoError(t, b.Send(ctxOf(t), a.Addr(), []byte("hello")))
	}
}

// Address handles to a peer that is silent are made anew, as if its port had got another MAC.
func TestHandlesOfSilentPeers(t *testing.T) {
	if onEFA {
		t.Skip("a handle of EFA names no MAC")
	}
	a, b := pair(t, srd.Config{PeerTimeout: time.Second})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	before := a.Handles(b.Addr())
	require.ErrorIs(t, a.Send(ctxOf(t), unheard(t, a, b), []byte("anybody?")), srd.ErrUnresponsive)
	after := a.Handles(b.Addr())
	renewed := 0
	for label, ah := range before {
		if after[label] != ah {
			renewed++
		}
	}
	require.NotZero(t, renewed)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
}

// An endpoint sends and receives again within seconds of a change of its host or its peer's,
// with traffic under way meanwhile.
func TestHostChanges(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("simulated devices have no network interface")
	}
	lab.RequireTopology(t, "wire")
	es := ends(t)
	a, b := open(t, es[0], srd.Config{}), open(t, es[1], srd.Config{})
	dev, addr := es[0].Netdev, es[0].Addr.String()
	for i := range es {
		iface, err := net.InterfaceByName(es[i].Netdev)
		require.NoError(t, err)
		t.Cleanup(func() {
			lab.IP(t, "link", "set", iface.Name, "address", iface.HardwareAddr.String())
			lab.IP(t, "neigh", "flush", "all")
		})
	}
	// Routes go with the address and with the link.
	restore := func(t *testing.T) {
		lab.IP(t, "route", "replace", netip.PrefixFrom(es[0].Addr, 24).Masked().String(), "dev", dev, "src", addr, "table", "101")
		lab.IP(t, "neigh", "flush", "all") // another MAC is announced, or asked for after a while
	}
	bounce := func(t *testing.T, down ...string) {
		lab.IP(t, "link", "set", dev, "down")
		if len(down) > 0 {
			lab.IP(t, down...)
		}
	}
	for _, change := range []struct {
		name string
		make func(t *testing.T)
	}{
		{"address", func(t *testing.T) {
			lab.IP(t, "addr", "del", addr+"/24", "dev", dev)
			time.Sleep(300 * time.Millisecond)
			lab.IP(t, "addr", "add", addr+"/24", "dev", dev)
		}},
		{"link", func(t *testing.T) {
			bounce(t)
			time.Sleep(300 * time.Millisecond)
			lab.IP(t, "link", "set", dev, "up")
		}},
		{"MAC", func(t *testing.T) {
			lab.IP(t, "link", "set", dev, "address", "02:00:00:00:77:01")
		}},
		{"MAC of the peer", func(t *testing.T) {
			lab.IP(t, "link", "set", es[1].Netdev, "address", "02:00:00:00:77:02")
		}},
		{"name", func(t *testing.T) {
			renamed := dev + "renamed"
			bounce(t, "link", "set", dev, "name", renamed)
			lab.IP(t, "rule", "add", "pref", "4", "iif", renamed, "lookup", "local")
			dev = renamed
			lab.IP(t, "link", "set", dev, "up")
			t.Cleanup(func() {
				bounce(t, "link", "set", dev, "name", es[0].Netdev)
				dev = es[0].Netdev
				lab.IP(t, "rule", "del", "pref", "4")
				lab.IP(t, "link", "set", dev, "up")
				restore(t)
			})
		}},
	} {
		t.Run(change.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(ctxOf(t))
			var traffic sync.WaitGroup
			send := func(from, to *srd.Endpoint) error {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				return from.Send(short, to.Addr(), pattern(1, 5000))
			}
			for _, ep := range []*srd.Endpoint{a, b} {
				traffic.Go(func() {
					var ms [8]srd.Message
					for {
						n, err := ep.Receive(ctx, ms[:])
						if err != nil {
							return
						}
						ep.Release(ms[:n]...)
					}
				})
				traffic.Go(func() {
					for ctx.Err() == nil {
						send(ep, map[*srd.Endpoint]*srd.Endpoint{a: b, b: a}[ep])
						time.Sleep(time.Millisecond)
					}
				})
			}
			defer traffic.Wait()
			defer stop()
			require.NoError(t, send(a, b))
			change.make(t)
			restore(t)
			start := time.Now()
			for _, to := range [][2]*srd.Endpoint{{a, b}, {b, a}} {
				require.Eventually(t, func() bool { return send(to[0], to[1]) == nil }, testTimeout/2, 10*time.Millisecond)
			}
			t.Logf("after %v; %+v", time.Since(start), a.Stats())
		})
	}
}
