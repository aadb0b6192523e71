//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
)

// An owner that gives up a move does not begin it again: its next owner makes another request, for half as many shards.
func TestSimulatedMoveIsKept(t *testing.T) {
	r := newRig(t)
	impatient := func(cfg *cluster.Config) { cfg.SetPatience(time.Nanosecond) }
	a := r.start("a", "127.0.0.1:0", heavy, impatient)
	a.owns(shards)
	const requests = "/rdmacached/test/moves/to/b"
	replies := r.connect().Watch(r.ctx, "/rdmacached/test/moves/from/a")
	asked := r.connect().Watch(r.ctx, requests)
	r.start("b", "127.0.0.1:0", 1, impatient) // or it had all records before the owner looks again
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
	var sizes []int // of all requests, which all fail
	for len(sizes) < 3 {
		for _, e := range (<-asked).Events {
			var v struct {
				Number uint64
				Shards map[int]uint32
			}
			require.NoError(t, json.Unmarshal(e.Kv.Value, &v))
			if v.Number != 0 {
				sizes = append(sizes, len(v.Shards))
			}
		}
	}
	for i, n := range sizes[1:] {
		require.Equal(t, max(sizes[i]/2, 1), n, "after a failure")
	}
}

// A member asks for a shard that its owner hands over to another member, as members do that join at about the same time. The
// shards come when the plan is another one, with no warning and no pause.
func TestSimulatedPlanIsOutOfDate(t *testing.T) {
	r := newRig(t)
	a := r.first()
	a.server.SetShard(0, server.ShardHeld) // which is the first of the plan
	var log lines
	b := r.start("b", "127.0.0.1:0", 1, func(cfg *cluster.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	require.Eventually(t, func() bool { return len(b.Peers()) > 0 }, stuck, time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, b.Status().Moves)
	a.server.SetShard(0, server.ShardOwned)
	b.owns(share)
	require.Empty(t, log.String())
}

// A member moves shards for a quarter of the time, so that what it moves is served meanwhile.
func TestSimulatedMovesRest(t *testing.T) {
	r := newRig(t)
	r.first()
	changes := r.connect().Watch(r.ctx, "/rdmacached/test/", clientv3.WithPrefix())
	b := r.start("b", "127.0.0.1:0", heavy)
	var asked, moved time.Time // a move, of which a part is its copy, before
	var moving, resting time.Duration
	for requested := 0; requested < shards/2; {
		for _, e := range (<-changes).Events {
			var v struct {
				Number   uint64
				Imported uint32
				Shards   map[int]uint32
			}
			switch key := string(e.Kv.Key); {
			case strings.HasSuffix(key, "/moves/to/b"):
				require.NoError(t, json.Unmarshal(e.Kv.Value, &v))
				if v.Imported != 0 || v.Number == 0 {
					continue
				}
				requested += len(v.Shards)
				if asked = time.Now(); !moved.IsZero() {
					resting += asked.Sub(moved)
				}
			case strings.HasSuffix(key, "/placement") && !asked.IsZero():
				moved = time.Now()
				moving += moved.Sub(asked)
			}
		}
	}
	b.owns(shards / 2)
	require.Greater(t, resting, 2*moving)
}

// gate passes connections on until it is shut, and then keeps them.
type gate struct {
	address string
	to      atomic.Pointer[string] // where connections go
	mu      sync.Mutex
	closed  chan struct{} // while it is open
}

// newGate returns an open gate. It has to be set where connections go.
func newGate(t *testing.T) *gate {
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
			far, err := net.Dial("tcp", *g.to.Load())
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
	g := newGate(t)
	r.names = []string{g.address}
	a := r.start("a", "127.0.0.1:0", heavy, func(cfg *cluster.Config) {
		behind := cfg.Advertise
		g.to.Store(&behind)
		cfg.Advertise = g.address
	})
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

// A key that a loader has reserved stays reserved when it moves: loaders at the next owner wait, and the record is stored.
func TestSimulatedReservationMoves(t *testing.T) {
	r := newRig(t)
	a := r.first()
	first := 0 // a key of the shard that moves first
	for place.ShardOf(key(first)) != 0 {
		first++
	}
	var loads atomic.Int32
	loading, end := make(chan struct{}, 2), make(chan struct{})
	loader := func(c *cache.Cluster) (wait func() cache.LoaderStats) {
		l, over := cache.NewLoader(c, cache.LoaderConfig{LoadTime: stuck}), make(chan struct{})
		go func() {
			defer close(over)
			it, err := l.Load(r.ctx, key(first), time.Hour, func(context.Context) (cache.Item, error) {
				loads.Add(1)
				loading <- struct{}{}
				<-end
				return cache.Item{Value: []byte("loaded")}, nil
			})
			assert.NoError(t, err)
			assert.Equal(t, "loaded", string(it.Value))
		}()
		return func() cache.LoaderStats {
			<-over
			return l.Stats()
		}
	}
	c, other := r.dial(a.address), r.dial(a.address)
	wait := loader(c)
	<-loading
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
	for _, c := range []*cache.Cluster{c, other} {
		require.Eventually(t, func() bool { return c.Server(key(first)).Address() == b.address }, stuck, time.Millisecond)
	}
	_, err := other.Get(r.ctx, key(first))
	require.ErrorIs(t, err, cache.ErrNotFound)
	waits := loader(other)
	time.Sleep(50 * time.Millisecond)
	close(end)
	require.Zero(t, wait().Unstored)
	require.Equal(t, uint64(1), waits().Waited)
	require.Equal(t, int32(1), loads.Load())
	it, err := other.Get(r.ctx, key(first))
	require.NoError(t, err)
	require.Equal(t, "loaded", string(it.Value))
}

// A member has no client of a server that is no member any more, and of none when it has ended.
func TestSimulatedPeersLeave(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	require.Equal(t, []string{a.address}, b.Peers())
	require.NoError(t, b.Drain(r.ctx))
	require.NotZero(t, a.Status().Moves, "it has had a client of the other one")
	none := func(m, at *node) {
		t.Helper()
		require.Eventually(t, func() bool { return len(m.Peers()) == 0 }, stuck, time.Millisecond)
		require.Eventually(t, func() bool { return at.server.Stats().Clients == 0 }, stuck, time.Millisecond, "the client is open")
	}
	none(a, b)
	b.end()
	none(b, a)
}
