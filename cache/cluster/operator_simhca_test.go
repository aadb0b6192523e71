//go:build simhca && linux && cgo

package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/cluster"
)

// An operator drains a member under load, whose next life has no shards either, until that is taken back. No request fails and
// nothing is missed.
func TestSimulatedOperatorDrains(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	l := r.load(c)
	cfg := cluster.Config{Name: "test", Etcd: []string{r.etcd.URL}, TTL: time.Second}
	var seen []int
	note := func(shards int) { seen = append(seen, shards) }
	require.NoError(t, cluster.SetDrain(r.ctx, cfg, "b", true, note))
	require.Zero(t, seen[len(seen)-1])
	require.Eventually(t, func() bool { return b.Status().State == cluster.Draining && b.Status().Shards == 0 }, stuck, time.Millisecond)
	require.ErrorIs(t, cluster.SetDrain(r.ctx, cfg, "a", true, note), cluster.ErrLast)
	require.ErrorContains(t, cluster.SetDrain(r.ctx, cfg, "x", true, note), "there are: a, b")
	cfg.Name = "other"
	require.ErrorContains(t, cluster.SetDrain(r.ctx, cfg, "b", true, note), "no member has the id")
	cfg.Name = "no name"
	require.ErrorContains(t, cluster.SetDrain(r.ctx, cfg, "b", true, note), "name")
	cfg.Name = "test"

	require.NoError(t, b.Drain(r.ctx)) // it leaves, and comes again
	<-b.Done()
	b.end()
	b = r.start("b", b.address, 1)
	require.Eventually(t, func() bool { return b.Status().State == cluster.Draining && b.Status().Shards == 0 }, stuck, time.Millisecond)
	require.NoError(t, cluster.SetDrain(r.ctx, cfg, "b", false, note))
	require.Equal(t, share, seen[len(seen)-1])
	require.Eventually(t, func() bool { return b.Status().State == cluster.Active }, stuck, time.Millisecond)
	t.Logf("%d operations", l.end())
}
