//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// Moving all shards would take a test too long: the second server gets a share of them.
const (
	shards = 1024
	keys   = 400
	heavy  = 31
	share  = shards / (heavy + 1)
)

// load increments numbers, and sets and gets records, until it is stopped. Nothing goes back, is missed, or fails.
type load struct {
	t       *testing.T
	stop    chan struct{}
	running sync.WaitGroup
	ops     [keys]int
}

func (r *rig) load(c *cache.Cluster) *load {
	l := &load{t: r.t, stop: make(chan struct{})}
	const workers = 4
	for w := range workers {
		l.running.Go(func() {
			for n := 0; ; n++ {
				for i := w; i < keys; i += workers {
					select {
					case <-l.stop:
						return
					default:
					}
					if !l.once(r.ctx, c, i) {
						return
					}
				}
			}
		})
	}
	return l
}

// once does something with a key, and reports whether all was as it should be.
func (l *load) once(ctx context.Context, c *cache.Cluster, i int) bool {
	n, err := c.Increment(ctx, key(i), 1)
	l.ops[i]++
	if err != nil || n != uint64(l.ops[i]) {
		l.t.Errorf("increment %d: %d, %v after %d", i, n, err, l.ops[i])
		return false
	}
	it, err := c.Get(ctx, key(i))
	if err != nil || string(it.Value) != strconv.Itoa(l.ops[i]) {
		l.t.Errorf("get %d: %q, %v after %d", i, it.Value, err, l.ops[i])
		return false
	}
	return true
}

func (l *load) end() int {
	close(l.stop)
	l.running.Wait()
	total := 0
	for _, n := range l.ops {
		total += n
	}
	return total
}

// fill stores a number for each key.
func fill(t *testing.T, ctx context.Context, c *cache.Cluster) {
	t.Helper()
	var puts []cache.Entry
	for i := range keys {
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: []byte("0"), Flags: uint32(i)}, TTL: time.Hour})
	}
	for _, err := range c.SetMulti(ctx, puts, nil) {
		require.NoError(t, err)
	}
}

// A second server joins, takes its share of the shards with their records, gives them back, leaves, and comes
// again. Under load no request fails, nothing is missed, and no change is lost.
func TestSimulatedJoinAndDrain(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c := r.dial(a.address)
	fill(t, r.ctx, c)
	l := r.load(c)
	begun := time.Now()
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
	a.owns(shards - share)
	require.Len(t, c.Stats(), 2)
	require.NoError(t, b.Drain(r.ctx))
	a.owns(shards)
	<-b.Done()
	require.NoError(t, b.Err())
	require.Eventually(t, func() bool { return b.server.Stats().Clients == 0 }, stuck, time.Millisecond, "the others leave it")
	b.end()
	require.Eventually(t, func() bool { return len(c.Stats()) == 1 }, stuck, time.Millisecond)
	require.Len(t, a.Status().Members, 1)
	require.ErrorIs(t, a.Drain(r.ctx), cluster.ErrLast)
	b = r.start("b", b.address, 1)
	b.owns(share)
	moved := 2*share + b.Status().Moves
	t.Logf("%d operations while %d shards moved in %v", l.end(), moved, time.Since(begun))
	list := make([][]byte, keys)
	for i := range list {
		list[i] = key(i)
	}
	for i, res := range c.GetMulti(r.ctx, list, nil) {
		require.NoError(t, res.Err)
		require.Equal(t, strconv.Itoa(l.ops[i]), string(res.Value))
		require.Equal(t, uint32(i), res.Flags)
	}
	for i := range keys {
		ttl, err := c.TTL(r.ctx, key(i))
		require.NoError(t, err)
		require.LessOrEqual(t, ttl, time.Hour-time.Since(begun)/2, "a move prolongs no life")
	}
}

// A member that gives up each move withdraws its request: changes of the shard wait for no longer than that takes.
func TestSimulatedMoveGivenUp(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c := r.dial(a.address)
	first := 0 // a key of the shard that moves first
	for place.ShardOf(key(first)) != 0 {
		first++
	}
	b := r.start("b", "127.0.0.1:0", 1, func(cfg *cluster.Config) { cfg.SetPatience(time.Nanosecond) })
	require.Eventually(t, func() bool { return b.Status().State == cluster.Active }, stuck, time.Millisecond)
	var longest time.Duration
	for begun := time.Now(); time.Since(begun) < 3*time.Second; {
		once := time.Now()
		require.NoError(t, c.Set(r.ctx, key(first), cache.Item{}, 0))
		longest = max(longest, time.Since(once))
	}
	t.Logf("a change took %v at most", longest)
	require.Less(t, longest, 1500*time.Millisecond, "the owner waits for 2 s otherwise")
	require.Zero(t, b.Status().Shards)
}

// A flush that goes on while shards move removes all records that were there before.
func TestSimulatedFlushBesideMoves(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c := r.dial(a.address)
	b := r.start("b", "127.0.0.1:0", 1)
	for n := 0; b.Status().Shards < share; n++ {
		fill(t, r.ctx, c)
		require.NoError(t, c.FlushAll(r.ctx))
		for i := range keys {
			_, err := c.Get(r.ctx, key(i))
			require.ErrorIs(t, err, cache.ErrNotFound, "flush %d", n)
		}
	}
}

// The keys of a server that ends are unavailable at first, and those of the other are served. Its next life gets a share
// without records. A server with the id of one that runs ends.
func TestSimulatedNextLife(t *testing.T) {
	r := newRig(t)
	a, b := r.start("a", "127.0.0.1:0", heavy), (*node)(nil)
	a.owns(shards)
	b = r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	twin := r.start("b", "127.0.0.1:0", 1)
	select {
	case <-twin.Done():
	case <-r.ctx.Done():
	}
	require.ErrorIs(t, twin.Err(), cluster.ErrTaken)
	twin.end()
	served := make(map[int]bool)
	for i := range keys {
		_, err := c.Get(r.ctx, key(i))
		require.NoError(t, err)
		if c.Server(key(i)).Address() == a.address {
			served[i] = true
		}
	}
	require.NotEmpty(t, served)
	b.end()
	for i := range keys {
		_, err := c.Get(r.ctx, key(i))
		if served[i] {
			require.NoError(t, err)
		} else if !errors.Is(err, cache.ErrNotFound) { // taken over
			require.ErrorIs(t, err, cache.ErrUnavailable)
		}
	}
	begun := time.Now()
	next := r.start("b", b.address, 1)
	next.owns(share)
	t.Logf("the next life owns its shards after %v", time.Since(begun))
	found := 0
	for i := range keys {
		require.Eventually(t, func() bool {
			_, err := c.Get(r.ctx, key(i))
			if err == nil {
				found++
			}
			return err == nil || errors.Is(err, cache.ErrNotFound)
		}, stuck, time.Millisecond)
	}
	require.Len(t, served, found)
}

// While etcd is silent the members serve, and go on afterwards.
func TestSimulatedSilentEtcd(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c := r.dial(a.address)
	fill(t, r.ctx, c)
	r.etcd.Stop(t)
	l := r.load(c)
	time.Sleep(3 * time.Second) // three TTLs
	require.NotZero(t, l.end())
	r.etcd.Continue(t)
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
}

// A client of one server gets an error for keys of others.
func TestSimulatedClientOfOneMember(t *testing.T) {
	r := newRig(t)
	a := r.start("a", "127.0.0.1:0", heavy)
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
	one, err := cache.Dial(r.ctx, a.address, cache.Config{DC: r.initiator})
	require.NoError(t, err)
	defer one.Close()
	moved := 0
	for i := range keys {
		err := one.Set(r.ctx, key(i), cache.Item{Value: []byte(fmt.Sprint(i))}, 0)
		if err != nil {
			require.ErrorIs(t, err, cache.ErrMoved)
			_, err = one.Get(r.ctx, key(i))
			require.ErrorIs(t, err, cache.ErrMoved)
			moved++
		}
	}
	require.NotZero(t, moved)
	require.Less(t, moved, keys/2)
}
