//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/cluster"
)

// An owner that gives up a move does not begin it again: its next owner makes another request, for half as many shards.
func TestSimulatedMoveIsKept(t *testing.T) {
	r := newRig(t)
	a := r.start("a", "127.0.0.1:0", heavy, func(cfg *cluster.Config) { cfg.SetPatience(time.Nanosecond) })
	a.owns(shards)
	const requests = "/rdmacached/test/moves/to/b"
	replies := r.connect().Watch(r.ctx, "/rdmacached/test/moves/from/a")
	asked := r.connect().Watch(r.ctx, requests)
	r.start("b", "127.0.0.1:0", 1)
	closed, refused := make(map[uint64]int), make(map[uint64]bool)
	for len(refused) < 3 {
		for _, e := range (<-replies).Events {
			var v struct {
				Number  uint64
				Version uint32
			}
			require.NoError(t, json.Unmarshal(e.Kv.Value, &v))
			switch {
			case v.Version != 0:
				closed[v.Number]++
				require.Equal(t, 1, closed[v.Number], "request %d", v.Number)
			case v.Number != 0:
				refused[v.Number] = true
			}
		}
	}
	sizes := make(map[uint64]int)
	for len(sizes) < 3 {
		for _, e := range (<-asked).Events {
			var v struct {
				Number uint64
				Shards map[int]uint32
			}
			require.NoError(t, json.Unmarshal(e.Kv.Value, &v))
			if v.Number != 0 {
				sizes[v.Number] = len(v.Shards)
			}
		}
	}
	for n := range refused {
		if refused[n-1] {
			require.Equal(t, sizes[n-1]/2, sizes[n], "after a failure")
		}
	}
}

// gate passes connections on until it is shut, and then keeps them.
type gate struct {
	address string
	mu      sync.Mutex
	closed  chan struct{} // while it is open
}

// gateTo returns an open gate to an address that is set later.
func gateTo(t *testing.T, to *string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{address: l.Addr().String(), closed: make(chan struct{})}
	close(g.closed)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", *to)
			if err != nil {
				near.Close()
				continue
			}
			go g.pass(near, far)
			go g.pass(far, near)
		}
	}()
	return g
}

func (g *gate) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		g.mu.Lock()
		open := g.closed
		g.mu.Unlock()
		<-open
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// shut holds all that comes back, until the returned function is called.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
	return sync.OnceFunc(func() { close(g.closed) })
}

// A member that cannot reach the owner of most of its shards gets those of others meanwhile.
func TestSimulatedOwnerOutOfReach(t *testing.T) {
	r := newRig(t)
	var behind string
	g := gateTo(t, &behind)
	r.names = []string{g.address}
	a := r.start("a", "127.0.0.1:0", heavy, func(cfg *cluster.Config) { behind, cfg.Advertise = cfg.Advertise, g.address })
	r.names = nil
	a.owns(shards)
	d := r.start("d", "127.0.0.1:0", 1)
	d.owns(share)
	b := r.start("b", "127.0.0.1:0", heavy)
	require.Eventually(t, func() bool { return b.Status().Moves > share }, stuck, time.Millisecond)
	open := g.shut()
	defer open()
	ctx, cancel := context.WithTimeout(r.ctx, 40*time.Second)
	defer cancel()
	require.NoError(t, d.Drain(ctx), "it gives half of its shards to the member that moves others from the owner out of reach")
	require.NotZero(t, b.Status().Planned)
	open()
	require.Eventually(t, func() bool { return b.Status().Planned == 0 }, stuck, 5*time.Millisecond)
}
