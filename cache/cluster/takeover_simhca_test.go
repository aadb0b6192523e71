//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
)

// gap is for how long the keys of a dead member are unavailable at most: 1.1 TTL, two beats, and some time for the
// transaction, all of it twice, since the machine may be busy. Slow transactions of etcd come on top.
const gap = 2 * (1100 + 2*1000/6 + 300) * time.Millisecond

// slowest returns a function that returns how long the slowest transaction of etcd took since.
func (r *rig) slowest() func() time.Duration {
	r.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.URL}, Logger: zap.NewNop()})
	require.NoError(r.t, err)
	var longest atomic.Int64
	ctx, stop := context.WithCancel(r.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			_, _ = c.Put(ctx, "slowest", "")
			longest.Store(max(longest.Load(), int64(time.Since(begun))))
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() time.Duration {
		stop()
		running.Wait()
		require.NoError(r.t, c.Close())
		return time.Duration(longest.Load())
	}
}

// keysOf returns keys whose server has an address.
func keysOf(t *testing.T, c *cache.Cluster, address string, n int) (list [][]byte) {
	t.Helper()
	for i := range 100 * keys {
		if k := key(i); len(list) < n && c.Server(k).Address() == address {
			list = append(list, k)
		}
	}
	require.Len(t, list, n)
	return list
}

// pair starts a member with nearly all shards, and one with its share.
func (r *rig) pair() (a, b *node) {
	r.t.Helper()
	a = r.first()
	b = r.start("b", "127.0.0.1:0", 1)
	b.owns(share)
	return a, b
}

func (r *rig) one(address string, cfg cache.Config) *cache.Client {
	r.t.Helper()
	cfg.DC = r.initiator
	c, err := cache.Dial(r.ctx, address, cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	return c
}

// A member dies under load: the other one takes over its shards in time, without records. What the other one had is
// neither missed nor refused.
func TestSimulatedTakeover(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	of, others := keysOf(t, c, a.address, 21), keysOf(t, c, b.address, 5)
	l := r.history(c, of[:20])
	l.reader("cluster", c)
	l.goesOn(100)
	for _, k := range others {
		require.NoError(t, c.Set(r.ctx, k, cache.Item{Value: []byte("kept")}, 0))
	}
	slowest := r.slowest()
	begun := time.Now()
	a.end()
	for {
		for _, k := range others {
			it, err := c.Get(r.ctx, k)
			require.NoError(t, err)
			require.Equal(t, "kept", string(it.Value))
		}
		if c.Set(r.ctx, of[20], cache.Item{}, 0) == nil {
			break
		}
	}
	took, slow := time.Since(begun), slowest()
	t.Logf("taken over after %v; the slowest transaction took %v", took, slow)
	require.Less(t, took, gap+2*slow)
	l.goesOn(100)
	l.end()
	st := b.Status()
	require.Equal(t, cluster.Active, st.State)
	require.Equal(t, []cluster.MemberStatus{{ID: "b", Address: b.address, Weight: 1, Shards: shards}}, st.Members)
	require.Equal(t, []uint64{shards, share, 0, 1}, []uint64{uint64(st.Shards), st.Moves, st.Given, st.Takeovers})
	require.Zero(t, st.Planned)
	require.NotZero(t, st.Beats)
	require.NotZero(t, st.Beat)
	for i := range keys {
		if _, err := c.Get(r.ctx, key(i)); err != nil {
			require.ErrorIs(t, err, cache.ErrNotFound)
		}
	}
}

// A member dies of which etcd has lost the key, as it does if a server is told to leave and killed when it has just become
// a member: the others take over its shards.
func TestSimulatedTakeoverWithoutKey(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	b.end()
	_, err := r.connect().Delete(r.ctx, "/rdmacached/test/servers/b/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return a.Status().Takeovers == 1 }, 30*time.Second, time.Millisecond)
	a.owns(shards)
}

// A server has the address of one that has died, and maybe its id, or has no word of etcd yet: until the takeover the keys
// of that are unavailable, and not only without a connection.
func TestSimulatedAnotherServerAtTheAddress(t *testing.T) {
	for i, id := range []string{"b", "c", "c"} {
		r := newRig(t)
		held := make(chan struct{})
		noTakeover := r.behind(func(q *pb.TxnRequest, execute func()) {
			for _, op := range q.Success {
				if op.GetRequestDeleteRange() != nil {
					<-held
				}
			}
			execute()
		})
		a := r.start("a", "127.0.0.1:0", heavy, noTakeover)
		a.owns(shards)
		b := r.start("b", "127.0.0.1:0", 1)
		b.owns(share)
		c, err := cache.DialCluster(r.ctx, []string{a.address, b.address}, cache.ClusterConfig{Config: cache.Config{DC: r.initiator}, MissWhenDown: true})
		require.NoError(t, err)
		_, err = c.Get(r.ctx, key(0)) // the placement has come before the reply
		require.ErrorIs(t, err, cache.ErrNotFound)
		k := keysOf(t, c, b.address, 1)[0]
		one := c.Server(k)
		sessions := one.Stats().Sessions
		b.end()
		etcd := noTakeover
		if i == 2 {
			etcd = r.behind(func(_ *pb.TxnRequest, execute func()) {
				<-held
				execute()
			})
		}
		r.start(id, b.address, 1, etcd)
		require.Eventually(t, func() bool { return one.Stats().Sessions > sessions && one.Stats().Connected }, stuck, time.Millisecond)
		_, err = c.Get(r.ctx, k)
		require.ErrorIs(t, err, cache.ErrNotFound)
		require.ErrorContains(t, err, "another server has this address")
		got := c.GetMulti(r.ctx, [][]byte{k}, nil)
		require.ErrorIs(t, got[0].Err, cache.ErrNotFound)
		require.ErrorIs(t, c.Set(r.ctx, k, cache.Item{}, 0), cache.ErrUnavailable)
		require.ErrorIs(t, c.SetMulti(r.ctx, []cache.Entry{{Key: k}}, nil)[0], cache.ErrUnavailable)
		close(held)
		require.Eventually(t, func() bool { return c.Set(r.ctx, k, cache.Item{}, 0) == nil }, stuck, time.Millisecond)
		require.NoError(t, c.Close())
	}
}

// A member stops to beat, and its device goes on to respond to READs, which find its records. The other one takes over its
// shards. No client gets a value that is older than a change which was acknowledged before, in no way of reading.
func TestSimulatedTakeoverWhileTheDeviceResponds(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	of := keysOf(t, c, a.address, 21)
	still := of[20] // a record that does not change
	require.NoError(t, c.Set(r.ctx, still, cache.Item{Value: []byte("0")}, 0))
	of = of[:20]
	h := r.history(c, of)
	readers := map[string]*cache.Client{
		"map": r.one(a.address, cache.Config{}), "buckets": r.one(a.address, cache.Config{MapBytes: -1}), "parts": r.one(a.address, cache.Config{PaceFrom: 1}),
	}
	for name, one := range readers {
		h.reader(name, one)
	}
	h.reader("cluster", c)
	near := r.one(a.address, cache.Config{NearBytes: 1 << 20, NearStale: time.Hour})
	h.goesOn(200)
	for name, one := range readers {
		require.Eventually(t, func() bool { return one.Stats().Hits > 100 }, stuck, time.Millisecond, name)
	}
	require.Eventually(t, func() bool {
		_, err := near.Get(r.ctx, still)
		return err == nil && near.Stats().NearHits > 0
	}, stuck, time.Millisecond)
	require.NoError(t, a.Close()) // the membership: the server and its device go on
	require.Eventually(t, func() bool { return b.Status().Takeovers == 1 }, stuck, time.Millisecond)
	h.goesOn(200)
	for name, one := range readers {
		hits := one.Stats().Hits
		for _, k := range of {
			_, err := one.Get(r.ctx, k)
			require.ErrorIs(t, err, cache.ErrMoved, name)
			require.ErrorIs(t, one.Set(r.ctx, k, cache.Item{}, 0), cache.ErrMoved, name)
		}
		require.Equal(t, hits, one.Stats().Hits, name)
		require.NotZero(t, one.Stats().Ungranted, name)
	}
	_, err := near.Get(r.ctx, still)
	require.ErrorIs(t, err, cache.ErrMoved)
	h.end()
}

// A member stands still until another one has taken over its shards. When it goes on, it is a member again without its old
// records, and clients that were connected all the time READ the new ones.
func TestSimulatedMemberComesBack(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	of := keysOf(t, c, b.address, 10)
	h := r.history(c, of)
	one := r.one(b.address, cache.Config{})
	h.reader("one", one)
	h.reader("cluster", c)
	h.goesOn(100)
	resume := b.Stall()
	require.Eventually(t, func() bool { return a.Status().Takeovers == 1 }, stuck, time.Millisecond)
	h.goesOn(100)
	resume()
	b.owns(share)
	require.Eventually(t, func() bool { return one.Stats().Sessions > 1 }, stuck, time.Millisecond, "the first one belongs to the life before")
	hits := one.Stats().Hits
	require.Eventually(t, func() bool { return one.Stats().Hits > hits }, stuck, time.Millisecond)
	h.goesOn(100)
	h.end()
	require.NoError(t, b.Err())
	require.Len(t, a.Status().Members, 2)
}

// While etcd is silent all members serve by promises, and nothing is taken over or lost when it is back. If a member dies
// meanwhile, the other one stops until etcd is back.
func TestSimulatedSilentEtcdOfTwo(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	r.etcd.Stop(t)
	l := r.load(c)
	time.Sleep(4 * time.Second) // four TTLs
	r.etcd.Continue(t)
	require.Eventually(t, func() bool { return a.Status().Left > 0 && b.Status().Left > 0 }, stuck, time.Millisecond)
	time.Sleep(time.Second)
	t.Logf("%d operations, %d and %d rounds of promises", l.end(), a.Status().Promises, b.Status().Promises)
	require.NotZero(t, a.Status().Promises)
	require.NotZero(t, b.Status().Promises)
	require.Zero(t, a.Status().Takeovers+b.Status().Takeovers)

	of := keysOf(t, c, a.address, 1)[0]
	r.etcd.Stop(t)
	b.end()
	begun := time.Now()
	for {
		ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
		_, err := c.Get(ctx, of)
		cancel()
		if errors.Is(err, cache.ErrMoved) || errors.Is(err, context.DeadlineExceeded) {
			break
		}
		require.True(t, err == nil || errors.Is(err, cache.ErrNotFound), "%v", err)
		require.Less(t, time.Since(begun), stuck/2)
	}
	r.etcd.Continue(t)
	require.Eventually(t, func() bool { return a.Status().Shards == shards }, stuck, time.Millisecond)
	_, err := c.Get(r.ctx, of)
	require.NoError(t, err, "its own records stay")
}

// A server with another TTL does not join, and is told why.
func TestSimulatedOtherTTL(t *testing.T) {
	r := newRig(t)
	a := r.first()
	b := r.start("b", "127.0.0.1:0", 1, func(cfg *cluster.Config) { cfg.TTL = 2 * time.Second })
	select {
	case <-b.Done():
	case <-r.ctx.Done():
	}
	require.ErrorIs(t, b.Err(), cluster.ErrTTL)
	require.Len(t, a.Status().Members, 1)
}

// A client that READs all the time asks for a few grants in a TTL, and one that is idle for none.
func TestSimulatedGrants(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c, idle := r.one(a.address, cache.Config{}), r.one(a.address, cache.Config{})
	require.NoError(t, c.Set(r.ctx, key(0), cache.Item{Value: []byte(strconv.Itoa(1))}, 0))
	begun, n := time.Now(), 0
	for ; time.Since(begun) < 2*time.Second; n++ {
		_, err := c.Get(r.ctx, key(0))
		require.NoError(t, err)
	}
	st := c.Stats()
	t.Logf("%d hits of %d, %d grants, %d READs did not count", st.Hits, n, st.Grants, st.Ungranted)
	require.Greater(t, st.Hits, uint64(n/2))
	require.Less(t, st.Grants, uint64(20), "of a TTL of a second; half a second each is what it takes")
	require.LessOrEqual(t, idle.Stats().Grants, uint64(1))
}

// A member that is cut off from etcd before a change of the placement learns it from the one that it asks for a promise, and
// goes on to serve.
func TestSimulatedPromiseHasANewerPlacement(t *testing.T) {
	r := newRig(t)
	g := newGate(t)
	behind := strings.TrimPrefix(r.etcd.URL, "http://")
	g.to.Store(&behind)
	a := r.start("a", "127.0.0.1:0", 1, func(cfg *cluster.Config) { cfg.Etcd = []string{"http://" + g.address} })
	a.owns(shards)
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(shards / 2)
	require.Eventually(t, func() bool { return a.Status().Epoch == b.Status().Epoch && a.Status().Planned == 0 }, stuck, time.Millisecond)
	before := a.Status().Epoch
	defer g.shut()()
	_, err := r.connect().Put(r.ctx, "/rdmacached/test/operator/drain/b", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.Status().Epoch > before }, stuck, time.Millisecond)
	require.Eventually(t, func() bool { return a.Status().Epoch == b.Status().Epoch }, stuck, time.Millisecond)
	promises := a.Status().Promises
	require.Eventually(t, func() bool { return a.Status().Promises > promises+20 }, stuck, time.Millisecond)
	require.Equal(t, cluster.Active, a.Status().State)
	require.Zero(t, b.Status().Takeovers)
}
