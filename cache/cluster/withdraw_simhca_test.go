//go:build simhca && linux && cgo

package cluster_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// front is an etcd that executes transactions alone, by another one.
type front struct {
	pb.UnimplementedKVServer
	to     pb.KVClient
	around func(q *pb.TxnRequest, execute func())
}

// Txn executes a transaction, also if the client gives up.
func (f *front) Txn(ctx context.Context, q *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
	f.around(q, func() { resp, err = f.to.Txn(context.WithoutCancel(ctx), q) })
	return resp, err
}

// behind has a member reach etcd by a front.
func (r *rig) behind(around func(q *pb.TxnRequest, execute func())) func(*cluster.Config) {
	r.t.Helper()
	c, err := grpc.NewClient(strings.TrimPrefix(r.etcd.URL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, &front{to: pb.NewKVClient(c), around: around})
	go func() { _ = s.Serve(l) }()
	r.t.Cleanup(func() {
		s.Stop()
		require.NoError(r.t, c.Close())
	})
	return func(cfg *cluster.Config) { cfg.Etcd = []string{"http://" + l.Addr().String()} }
}

// left checks that etcd has nothing of a server, nor the placement.
func (r *rig) left(id string, what ...any) {
	r.t.Helper()
	store := r.connect()
	got, err := store.Get(r.ctx, "/rdmacached/test/servers/"+id+"/", clientv3.WithPrefix())
	require.NoError(r.t, err)
	require.Empty(r.t, got.Kvs, what...)
	got, err = store.Get(r.ctx, "/rdmacached/test/placement")
	require.NoError(r.t, err)
	p, err := place.Parse(got.Kvs[0].Value)
	require.NoError(r.t, err)
	for s := range p.Members() {
		require.NotEqual(r.t, id, s.ID, what...)
	}
}

// A server is told to leave at each moment of its start, before or after etcd has executed a transaction: it leaves nothing
// behind, and is no member when it has ended.
func TestSimulatedLeavesWhileItJoins(t *testing.T) {
	r := newRig(t)
	a := r.first()
	for n, joined := int32(1), false; !joined; n++ {
		for _, executed := range []bool{false, true} {
			var sent atomic.Int32
			reached, told := make(chan struct{}), make(chan struct{})
			b := r.start("b", "127.0.0.1:0", 1, r.behind(func(_ *pb.TxnRequest, execute func()) {
				now := sent.Add(1) == n
				if now && !executed {
					close(reached)
					<-told
				}
				execute()
				if now && executed {
					close(reached)
					<-told
				}
			}))
			<-reached
			joined = b.Status().State == cluster.Active
			drained := make(chan error, 1)
			go func() { drained <- b.Drain(r.ctx) }()
			require.Eventually(t, b.Leaves, stuck, time.Millisecond)
			close(told)
			require.NoError(t, <-drained)
			r.left("b", "transaction %d, executed: %v", n, executed)
			b.end()
			require.NoError(t, b.Err())
		}
		t.Logf("transaction %d: member %v", n, joined)
	}
	require.Zero(t, a.Status().Takeovers)
	a.owns(shards)
}

// A member adds a server that has left before the transaction is executed.
func TestSimulatedAddedTooLate(t *testing.T) {
	r := newRig(t)
	adds, left := make(chan struct{}, 100), make(chan struct{})
	var done atomic.Int32
	a := r.start("a", "127.0.0.1:0", heavy, r.behind(func(q *pb.TxnRequest, execute func()) {
		for _, op := range q.Success {
			if put := op.GetRequestPut(); put != nil && strings.HasSuffix(string(put.Key), "/placement") && strings.Contains(string(put.Value), `"b"`) {
				adds <- struct{}{}
				<-left
				defer done.Add(1)
			}
		}
		execute()
	}))
	a.owns(shards)
	b := r.start("b", "127.0.0.1:0", 1)
	<-adds
	require.NoError(t, b.Drain(r.ctx))
	b.end()
	close(left)
	require.Eventually(t, func() bool { return done.Load() > 0 }, stuck, time.Millisecond)
	r.left("b")
}

// A server is told to leave that has written its key, and etcd replies no more.
func TestSimulatedLeavesASilentEtcd(t *testing.T) {
	r := newRig(t)
	r.first()
	var sent atomic.Int32
	silent, ended := make(chan struct{}), make(chan struct{})
	b := r.start("b", "127.0.0.1:0", 1, r.behind(func(_ *pb.TxnRequest, execute func()) {
		switch n := sent.Add(1); {
		case n == 3: // after the boot number and the first beat
			close(silent)
			fallthrough
		case n > 3:
			<-ended
		default:
			execute()
		}
	}))
	defer close(ended)
	<-silent
	require.NoError(t, b.Drain(r.ctx))
	require.Equal(t, cluster.Joining, b.Status().State)
}
