//go:build linux

package pacer_test

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// A call is over when its context ends before anything of it was posted, though an
// unsignaled request before it is held.
func TestCancelledCallBehindAHeldRequest(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	r.p.Pause(true)
	b, err := q.NewBatch(1)
	require.NoError(t, err)
	b.Add(verbs.WR{ID: 1, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(0, 64)}}) // not signaled
	_, err = b.Post()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	called := make(chan error, 1)
	go func() { called <- q.Read(ctx, r.b.mr.Region().At(0), r.a.mr.SGE(64, 64)) }()
	select {
	case err := <-called:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(stuck):
		t.Error("it waits for the other one")
	}
	r.p.Pause(false)
	require.NoError(t, q.Read(within(t), r.b.mr.Region().At(0), r.a.mr.SGE(64, 64)))
	r.idle()
}

// A Close that is refused changes nothing: what completes meanwhile is told.
func TestRefusedCloseLosesNothing(t *testing.T) {
	r := newRig(t, pacer.Config{})
	recvs, err := r.a.dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, recvs.Close()) })
	q, _ := r.paced(r.cq(), verbs.QPConfig{RecvCQ: recvs}, pacer.FlowConfig{})
	receiver, err := verbs.NewReceiver(q.QP(), verbs.ReceiverConfig{})
	require.NoError(t, err)
	defer receiver.Close()
	stop := make(chan struct{})
	var closing sync.WaitGroup
	closing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.ErrorIs(t, q.Close(), verbs.ErrInUse)
			}
		}
	})
	defer closing.Wait()
	defer close(stop)
	end := time.Now().Add(300 * time.Millisecond)
	for n := uint64(0); time.Now().Before(end); n++ {
		post(t, q, n, r.b.mr.Region().At(0), r.a.mr.SGE(0, 64))
		wc := one(t, q)
		require.NoError(t, wc.Err())
		require.Equal(t, n, wc.ID())
	}
}

// A reset throws receives away without a word. Those of a queue pair that is recovered
// again and again do not pile up.
func TestReceivesOfRecoveredQueuePairs(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, peer := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	recvs, err := q.NewRecvBatch(8)
	require.NoError(t, err)
	var wcs [8]verbs.WC
	for round := range 10 {
		for k := range 8 {
			recvs.Recv(uint64(100*round+k), r.a.mr.SGE(100*k, 100))
		}
		_, err = recvs.Post()
		require.NoError(t, err)
		r.reconnect(q, peer)
		for n := 1; n > 0; { // those that were flushed
			n, err = q.Poll(wcs[:])
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, r.p.Receives(), 16)
	recvs.Recv(4711, r.a.mr.SGE(0, 100))
	_, err = recvs.Post()
	require.NoError(t, err)
	b, err := peer.NewBatch(1)
	require.NoError(t, err)
	b.Send(1, verbs.Signaled, r.b.mr.SGE(0, 33))
	_, err = b.Post()
	require.NoError(t, err)
	require.EqualValues(t, 4711, one(t, q).ID())
}

// A pacer that outlives the devices it paced keeps nothing of them.
func TestPacerForgetsDevices(t *testing.T) {
	r := newRig(t, pacer.Config{})
	peer, err := r.peer().Endpoint()
	require.NoError(t, err)
	visit := func() weak.Pointer[verbs.Device] {
		dev, err := verbs.Open(r.a.dev.Name(), verbs.DeviceConfig{})
		require.NoError(t, err)
		pd, err := dev.AllocPD()
		require.NoError(t, err)
		cq, err := dev.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid})
		require.NoError(t, err)
		require.NoError(t, qp.Connect(peer, verbs.ConnectConfig{}))
		q, err := r.p.Wrap(qp, cq, pacer.FlowConfig{})
		require.NoError(t, err)
		_, err = r.p.Wrap(qp, cq, pacer.FlowConfig{})
		require.ErrorIs(t, err, verbs.ErrInUse)
		for _, c := range []io.Closer{q, cq, pd, dev} {
			require.NoError(t, c.Close())
		}
		return weak.Make(dev)
	}
	gone := visit()
	require.Eventually(t, func() bool {
		runtime.GC()
		return gone.Value() == nil
	}, stuck, 10*time.Millisecond)
}

// A binding of a window that was closed while the binding was held has failed, whatever is posted
// beside it, and its credit is back.
func TestBindingOfAClosedWindow(t *testing.T) {
	r := newRig(t, pacer.Config{})
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	mr, err := r.a.pd.AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow | verbs.RemoteRead})
	require.NoError(t, err)
	w, err := r.a.pd.AllocWindow(verbs.Window2)
	require.NoError(t, err)
	b, err := q.NewBatch(3)
	require.NoError(t, err)
	write := verbs.WriteWR(r.b.mr.Region().At(0), r.a.mr.SGE(0, 8))
	write.ID, write.Flags = 1, verbs.Signaled
	b.Add(write)
	b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Length: 64, Access: verbs.RemoteRead}})
	write.ID = 3
	b.Add(write)
	r.p.Pause(true)
	_, err = b.Post()
	require.NoError(t, err)
	require.NoError(t, w.Close())
	r.p.Pause(false)
	status := map[uint64]verbs.WCStatus{}
	for range 3 {
		wc := one(t, q)
		status[wc.ID()] = wc.Status()
	}
	require.Equal(t, map[uint64]verbs.WCStatus{1: verbs.WCSuccess, 2: verbs.WCFlushed, 3: verbs.WCSuccess}, status)
	require.NoError(t, mr.Close())
	r.idle()
}
