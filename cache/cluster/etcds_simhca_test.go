//go:build simhca && linux && cgo

package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/ci/etcd"
)

// lossTTL returns the TTL with which etcd loses members: the least one, or that of most clusters.
func lossTTL() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 3 * time.Second
}

// silence returns a function that returns for how long etcd has confirmed no beat of a member at most since.
func (n *node) silence() func() time.Duration {
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for beats, at := n.Status().Beats, time.Now(); ; time.Sleep(time.Millisecond) {
			select {
			case <-stop:
				longest <- most
				return
			default:
			}
			most = max(most, time.Since(at))
			if now := n.Status().Beats; now != beats {
				beats, at = now, time.Now()
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-longest
	}
}

// An etcd of three members loses its majority, and all members of the cluster are there: no request fails. Then the leader of
// etcd hangs, and in the end is killed, together with a member, of which the other one takes over the shards in time.
func TestSimulatedThreeEtcds(t *testing.T) {
	all := etcd.StartThree(t)
	r := rigWith(t, all...)
	ttl := lossTTL()
	edit := func(cfg *cluster.Config) { cfg.TTL = ttl }
	a := r.start("a", "127.0.0.1:0", heavy, edit)
	a.owns(shards)
	b := r.start("b", "127.0.0.1:0", 1, edit)
	b.owns(share)
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)

	l := r.load(c)
	all[0].Stop(t)
	all[1].Stop(t)
	time.Sleep(3 * ttl)
	all[0].Continue(t)
	all[1].Continue(t)
	beats := a.Status().Beats
	require.Eventually(t, func() bool { return a.Status().Beats > beats+2 }, stuck, time.Millisecond)
	t.Logf("two of three etcds away: %d operations, %d and %d rounds of promises", l.end(), a.Status().Promises, b.Status().Promises)
	require.NotZero(t, a.Status().Promises)
	require.NotZero(t, b.Status().Promises)
	require.Zero(t, a.Status().Takeovers+b.Status().Takeovers)

	lose := func(what string, end func(*etcd.Server, testing.TB)) (leader *etcd.Server) {
		t.Helper()
		of := keysOf(t, c, b.address, 1)[0]
		leader = r.leader(all)
		silence := a.silence()
		begun := time.Now()
		end(leader, t)
		b.end()
		require.Eventually(t, func() bool { return c.Set(r.ctx, of, cache.Item{}, 0) == nil }, stuck, time.Millisecond)
		took := time.Since(begun)
		silent := silence()
		t.Logf("etcd's leader %s: taken over after %v; no beat was confirmed for %v", what, took, silent)
		require.Less(t, took, gap*(ttl/time.Second)+silent)
		return leader
	}
	lose("hangs", (*etcd.Server).Stop).Continue(t)
	require.Equal(t, uint64(1), a.Status().Takeovers)
	b = r.start("b", b.address, 1, edit)
	b.owns(share)
	a.owns(shards - share)
	require.Eventually(t, func() bool { return len(c.Stats()) == 2 }, stuck, time.Millisecond)
	lose("is killed", (*etcd.Server).Kill)
	require.Equal(t, uint64(2), a.Status().Takeovers)
}

// leader waits until an etcd has a leader, and returns it.
func (r *rig) leader(all []*etcd.Server) *etcd.Server {
	r.t.Helper()
	i := -1
	require.Eventually(r.t, func() bool {
		i = slices.IndexFunc(all, (*etcd.Server).Leads)
		return i >= 0
	}, stuck, 10*time.Millisecond)
	return all[i]
}
