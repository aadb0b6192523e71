//go:build simhca && linux && cgo

package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/goverbs/goverbs/cache/cluster"
)

// connect returns a client of etcd.
func (r *rig) connect() *clientv3.Client {
	r.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.URL}, Logger: zap.NewNop()})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	return c
}

// A request and a reply that no move needs, as of a transaction that was late, are withdrawn.
func TestSimulatedMoveIsWithdrawn(t *testing.T) {
	r := newRig(t)
	r.first()
	c := r.connect()
	for _, key := range []string{"/rdmacached/test/moves/to/a", "/rdmacached/test/moves/from/a"} {
		_, err := c.Put(r.ctx, key, `{"to":"b","boot":"1","shards":{"3":1}}`)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			got, err := c.Get(r.ctx, key)
			return err == nil && strings.Contains(string(got.Kvs[0].Value), `"to":""`)
		}, stuck, 10*time.Millisecond, key)
	}
}

// A life that ends deletes its key, which it has written again after others took over its shards.
func TestSimulatedKeysOfLives(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.connect()
	lives := func() (n int64) {
		got, err := c.Get(r.ctx, "/rdmacached/test/servers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return got.Count
	}
	resume := b.Stall()
	require.Eventually(t, func() bool { return a.Status().Takeovers == 1 }, stuck, time.Millisecond)
	resume()
	require.Eventually(t, func() bool { return len(a.Status().Members) == 2 }, stuck, time.Millisecond)
	b.owns(share)
	require.Equal(t, int64(2), lives())
	twin := r.start("b", "127.0.0.1:0", 1)
	<-twin.Done()
	require.ErrorIs(t, twin.Err(), cluster.ErrTaken)
	require.Equal(t, int64(2), lives())
	require.NoError(t, b.Drain(r.ctx))
	<-b.Done()
	require.Equal(t, int64(1), lives())
}

// The key of a server that was killed while it joined does not stay, and neither does one that etcd has written after the
// server has left.
func TestSimulatedAbandonedKey(t *testing.T) {
	r := newRig(t)
	a := r.first()
	c := r.connect()
	const key = "/rdmacached/test/servers/b/1"
	_, err := c.Put(r.ctx, key, `{"address":"127.0.0.1:1","weight":1,"ttl":1000}`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got, err := c.Get(r.ctx, key)
		return err == nil && len(got.Kvs) == 0
	}, 30*time.Second, 10*time.Millisecond)
	require.Len(t, a.Status().Members, 1)
	a.owns(shards)
}
