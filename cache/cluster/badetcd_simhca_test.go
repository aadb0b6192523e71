//go:build simhca && linux && cgo

package cluster_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
)

// byPromises waits until members serve by promises.
func byPromises(t *testing.T, members ...*node) {
	t.Helper()
	for _, n := range members {
		before := n.Status().Promises
		require.Eventually(t, func() bool { return n.Status().Promises > before+2 }, stuck, time.Millisecond)
	}
}

// byEtcd waits until etcd is what members go by, and each has its share.
func byEtcd(t *testing.T, members ...*node) {
	t.Helper()
	for _, n := range members {
		require.Eventually(t, func() bool {
			before := n.Status().Promises
			time.Sleep(time.Second)
			return n.Status().Promises == before && n.Status().Planned == 0
		}, stuck, time.Millisecond)
	}
}

// A placement that nobody could have written, or that is older, or another cluster's, is not followed, and neither is one that is
// lost: members go on by promises, and no request fails. The same is so of other keys that cannot be read.
func TestSimulatedOtherPlacements(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	store := r.connect()
	const key, life = "/rdmacached/test/placement", "/rdmacached/test/servers/x"
	got, err := store.Get(r.ctx, key)
	require.NoError(t, err)
	right := string(got.Kvs[0].Value)
	p, err := place.Parse([]byte(right))
	require.NoError(t, err)
	older, other := *p, *p
	older.Epoch--
	for i := range older.Shards {
		older.Shards[i].Epoch = min(older.Shards[i].Epoch, older.Epoch)
	}
	other.Cluster[0]++
	l := r.load(c)
	for what, text := range map[string]string{
		"no placement": "{", "another format": `{"format": 99}`, "older": format(t, &older), "another cluster's": format(t, &other),
	} {
		_, err := store.Put(r.ctx, key, text)
		require.NoError(t, err)
		byPromises(t, a, b)
		require.Equal(t, cluster.Active, a.Status().State, what)
	}
	_, err = store.Delete(r.ctx, key)
	require.NoError(t, err)
	byPromises(t, a, b)
	_, err = store.Txn(r.ctx).Then(clientv3.OpPut(key, right), clientv3.OpPut(life, "")).Commit()
	require.NoError(t, err)
	byPromises(t, a, b)
	_, err = store.Delete(r.ctx, life)
	require.NoError(t, err)
	byEtcd(t, a, b)
	t.Logf("%d operations", l.end())
	require.Zero(t, a.Status().Takeovers+b.Status().Takeovers)
	require.Equal(t, []int{shards - share, share}, []int{a.Status().Shards, b.Status().Shards})
}

func format(t *testing.T, p *place.Placement) string {
	t.Helper()
	b, err := p.Format()
	require.NoError(t, err)
	return string(b)
}

// A backup of etcd is restored that has the placement, but older revisions. Members go on by promises until etcd has the
// revisions of before, and no request fails; then a member that dies is found dead.
func TestSimulatedRestoredBackup(t *testing.T) {
	r := newRig(t)
	a, b := r.pair()
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	restore := r.etcd.Backup(t)
	l := r.load(c)
	beats := a.Status().Beats
	require.Eventually(t, func() bool { return a.Status().Beats > beats+8 }, stuck, time.Millisecond)
	restore()
	byPromises(t, a, b)
	byEtcd(t, a, b)
	t.Logf("%d operations", l.end())
	require.Zero(t, a.Status().Takeovers+b.Status().Takeovers)
	b.end()
	require.Eventually(t, func() bool { return a.Status().Shards == shards }, stuck, time.Millisecond)
}

// A backup of etcd is restored from before a member has joined, and then one from before all have. The log says so at once, and
// not that revisions have to rise; no request fails.
func TestSimulatedBackupWithoutThePlacement(t *testing.T) {
	r := newRig(t)
	empty := r.etcd.Backup(t)
	var log lines
	a := r.start("a", "127.0.0.1:0", 1, func(cfg *cluster.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	a.owns(shards)
	older := r.etcd.Backup(t)
	b := r.start("b", "127.0.0.1:0", 1)
	b.owns(shards / 2)
	c := r.dial(a.address, b.address)
	fill(t, r.ctx, c)
	l := r.load(c)
	for _, restore := range []struct {
		backup func()
		says   string
	}{{older, "etcd has another placement than before"}, {empty, "etcd has lost the placement"}} {
		restore.backup()
		byPromises(t, a, b)
		require.Eventually(t, func() bool { return log.has(restore.says) }, stuck, 10*time.Millisecond)
	}
	t.Logf("%d operations", l.end())
	require.False(t, log.has("a backup has been restored"))
	require.Equal(t, []int{shards / 2, shards / 2}, []int{a.Status().Shards, b.Status().Shards})
}

// lines is what a logger has written.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) has(text string) bool { return strings.Contains(l.String(), text) }

// A server whose key is not that of the others gets no shards, and says why.
func TestSimulatedMemberWithAnotherKey(t *testing.T) {
	r := newRig(t)
	key := func(last string) func(*cluster.Config) {
		return func(cfg *cluster.Config) { cfg.Client.Key = []byte("sixteen bytes, " + last) }
	}
	r.key = []byte("sixteen bytes, a")
	a := r.start("a", "127.0.0.1:0", heavy, key("a"))
	a.owns(shards)
	var log lines
	b := r.start("b", "127.0.0.1:0", 1, key("b"), func(cfg *cluster.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	require.Eventually(t, func() bool { return log.has("denied") }, stuck, 10*time.Millisecond)
	require.Equal(t, cluster.Active, b.Status().State)
	require.Zero(t, b.Status().Shards)
	require.Equal(t, shards, a.Status().Shards)
}

// A server that has a snapshot, or has ended, becomes no member.
func TestSimulatedJoinIsRefused(t *testing.T) {
	r := newRig(t)
	cfg := cluster.Config{Name: "test", ID: "a", Etcd: r.urls, Advertise: "127.0.0.1:1", Client: cache.Config{DC: r.initiator}}
	s, err := server.Listen(r.ctx, "127.0.0.1:0", server.Config{Device: "mlx5_1", Memory: 1 << 20, Snapshot: t.TempDir() + "/snapshot"})
	require.NoError(t, err)
	_, err = cluster.Join(s, cfg)
	require.ErrorContains(t, err, "a snapshot")
	require.NoError(t, s.Close())
	s, err = server.Listen(r.ctx, "127.0.0.1:0", server.Config{Device: "mlx5_1", Memory: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = cluster.Join(s, cfg)
	require.ErrorIs(t, err, server.ErrClosed)
}
