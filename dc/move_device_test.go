//go:build linux

package dc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// TestHostChanges: the address of either end goes and comes back at another place of the GID
// table, its link goes down and up, and gets another link-layer address and another name,
// all of it under requests. Afterwards requests of the same initiator succeed again, to the
// same target.
func TestHostChanges(t *testing.T) {
	lab.RequireTopology(t, "wire")
	es := lab.Require(t, 2)
	a, b := newHosts(t)
	target := b.target(t, dc.TargetConfig{})
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: 4 * time.Millisecond, ConnectTimeout: time.Second})
	p := resolve(t, i, target, 0)
	idle := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
	// succeed repeats a request to each peer until it succeeds: a connection may take more than ConnectTimeout on a slow
	// host. It returns how long that took.
	succeed := func(ctx context.Context, t *testing.T, peers ...*dc.Peer) time.Duration {
		begin := time.Now()
		for n, peer := range peers {
			for {
				err := i.Do(ctx, peer, a.write(uint64(n), b, 64))
				if err == nil {
					break
				}
				require.Less(t, time.Since(begin), 15*time.Second, err)
				time.Sleep(10 * time.Millisecond)
			}
		}
		return time.Since(begin)
	}
	succeed(t.Context(), t, p, idle)

	for side, h := range []*host{a, b} {
		dev, prefix := es[side].Netdev, es[side].Addr.String()+"/24"
		// What the wire needs beside the address goes with it, and with the link.
		routes := func(t *testing.T) {
			lab.IP(t, "route", "replace", "10.77.0.0/24", "dev", dev, "src", es[side].Addr.String(), "table", fmt.Sprint(101+side))
		}
		// The kernel changes the table some time after the address.
		place := func(t *testing.T) (at uint8) {
			require.Eventually(t, func() bool {
				e, err := driver.FindGIDAgain(h.dev, h.gid)
				at = e.Index
				return err == nil
			}, testTimeout, time.Millisecond)
			return at
		}
		for name, change := range map[string]func(t *testing.T){
			"address": func(t *testing.T) {
				before := place(t)
				lab.IP(t, "addr", "del", prefix, "dev", dev)
				t.Cleanup(func() { lab.IP(t, "addr", "replace", prefix, "dev", dev) })
				require.Eventually(t, func() bool {
					_, err := driver.FindGIDAgain(h.dev, h.gid)
					return errors.Is(err, verbs.ErrNoGID)
				}, testTimeout, time.Millisecond)
				time.Sleep(100 * time.Millisecond) // requests fail
				lab.IP(t, "addr", "add", "10.79.9.9/24", "dev", dev)
				lab.IP(t, "addr", "add", prefix, "dev", dev)
				lab.IP(t, "addr", "del", "10.79.9.9/24", "dev", dev)
				require.NotEqual(t, before, place(t))
			},
			"link": func(t *testing.T) {
				lab.IP(t, "link", "set", dev, "down")
				time.Sleep(100 * time.Millisecond)
				lab.IP(t, "link", "set", dev, "up")
			},
			"link-layer address": func(t *testing.T) {
				lab.IP(t, "link", "set", dev, "address", fmt.Sprintf("02:00:00:00:00:%02x", 0x10+side))
			},
			"name": func(t *testing.T) {
				for _, names := range [][2]string{{dev, "renamed0"}, {"renamed0", dev}} {
					lab.IP(t, "link", "set", names[0], "down")
					lab.IP(t, "link", "set", names[0], "name", names[1])
					lab.IP(t, "link", "set", names[1], "up")
				}
			},
		} {
			t.Run(fmt.Sprintf("%s of %s", name, dev), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				traffic, stop := context.WithCancel(ctx)
				var all sync.WaitGroup
				all.Go(func() {
					for n := uint64(0); traffic.Err() == nil; n++ {
						i.Do(traffic, p, a.write(n, b, 0)) // fails now and then
					}
				})
				change(t)
				routes(t)
				t.Logf("requests succeed after %v: %+v", succeed(ctx, t, idle, p).Round(time.Millisecond), i.Stats())
				stop()
				all.Wait()
			})
		}
	}
}
