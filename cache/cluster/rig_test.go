//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/dc"
)

// stuck is when a test is taken for one that hangs.
const stuck = 3 * time.Minute

// rig is an etcd, and servers and clients on simulated devices of one process.
type rig struct {
	t         *testing.T
	ctx       context.Context
	etcd      *etcd.Server  // the first member
	urls      []string      // of all members
	key       []byte        // of servers; nil: none
	initiator *dc.Initiator // of clients, and of members that copy records
	names     []string      // of the servers that are started, besides their addresses
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigWith(t, etcd.Start(t))
}

// rigWith is newRig with the members of an etcd.
func rigWith(t *testing.T, members ...*etcd.Server) *rig {
	t.Helper()
	i := simulated.Initiator(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, etcd: members[0], initiator: i}
	for _, m := range members {
		r.urls = append(r.urls, m.URL)
	}
	return r
}

// node is a server and its membership.
type node struct {
	*cluster.Member
	t       *testing.T
	server  *server.Server
	address string
	served  chan error
	ended   bool
}

// first starts the first member, and returns it when it owns all shards.
func (r *rig) first() *node {
	r.t.Helper()
	a := r.start("a", "127.0.0.1:0", heavy)
	a.owns(shards)
	return a
}

// start starts a server at an address, and its membership with a weight.
func (r *rig) start(id, address string, weight int, edit ...func(*cluster.Config)) *node {
	r.t.Helper()
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil)).With("id", id)
	s, err := server.Listen(r.ctx, address, server.Config{Device: "mlx5_1", Memory: 8 << 20, Names: r.names, Key: r.key, DC: server.DCConfig{Responders: 1, Backend: dc.Hardware}})
	require.NoError(r.t, err)
	n := &node{t: r.t, server: s, address: s.Addr().String(), served: make(chan error, 1)}
	cfg := cluster.Config{Name: "test", ID: id, Etcd: r.urls, Advertise: n.address, TTL: time.Second, Weight: &weight,
		Client: cache.Config{DC: r.initiator}, Logger: log}
	for _, e := range edit {
		e(&cfg)
	}
	n.Member, err = cluster.Join(s, cfg)
	require.NoError(r.t, err)
	go func() { n.served <- s.Serve(context.Background()) }()
	r.t.Cleanup(n.end)
	return n
}

// end ends a server as a crash does.
func (n *node) end() {
	if n.ended {
		return
	}
	n.ended = true
	require.NoError(n.t, n.Close())
	require.NoError(n.t, n.Close(), "once more")
	require.NoError(n.t, n.server.Close())
	require.ErrorIs(n.t, <-n.served, server.ErrClosed)
}

// owns waits until a server owns so many shards.
func (n *node) owns(shards int) {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return n.Status().Shards == shards }, stuck, 5*time.Millisecond, "%d shards", shards)
}

func (r *rig) dial(addresses ...string) *cache.Cluster {
	r.t.Helper()
	c, err := cache.DialCluster(r.ctx, addresses, cache.ClusterConfig{Config: cache.Config{DC: r.initiator}})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	return c
}

func key(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
