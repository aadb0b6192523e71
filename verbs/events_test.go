//go:build linux

package verbs_test

import (
	"context"
	"iter"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// TestPortDownAndUp takes the link away under a queue pair.
func TestPortDownAndUp(t *testing.T) {
	lab.RequireTopology(t, "wire")
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 10 * time.Millisecond, Retries: 2})
	netdev := netdevOf(t, b.Dev.Name())
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	events := b.Dev.Events(ctx)
	ignored := b.Dev.Events(t.Context()) // is never ranged over
	_ = ignored

	lab.IP(t, "link", "set", netdev, "down")
	up := sync.OnceFunc(func() { lab.IP(t, "link", "set", netdev, "up") })
	defer up()
	seen := func(events iter.Seq[verbs.Event], want verbs.EventType) {
		t.Helper()
		for ev := range events {
			t.Log(ev.Type, ev.Port)
			if ev.Type == want {
				require.EqualValues(t, 1, ev.Port)
				return
			}
		}
		t.Fatalf("no %v", want)
	}
	// Another iterator over the same subscription would miss nothing, but each
	// range ends the subscription: take a new one before the next cause.
	seen(events, verbs.EventPortError)
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRetryExceeded)

	events = b.Dev.Events(ctx)
	other := a.Dev.Events(ctx)
	up()
	seen(events, verbs.EventPortActive)
	seen(other, verbs.EventPortActive) // it hears of it later, when another test may have begun
}

func netdevOf(t *testing.T, device string) string {
	t.Helper()
	for _, e := range lab.Require(t, 2) {
		if e.Device == device {
			return e.Netdev
		}
	}
	t.Fatalf("no netdev of %s", device)
	return ""
}

// TestEventsEnd: an iterator ends with its context, and with the device.
func TestEventsEnd(t *testing.T) {
	p := rig.Ports(t)
	d, err := verbs.Open(p[0].Name, verbs.DeviceConfig{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, c := range []context.Context{ctx, t.Context()} {
		events := d.Events(c)
		wg.Go(func() {
			for ev := range events {
				t.Error("unexpected event", ev.Type)
			}
		})
	}
	cancel()
	require.NoError(t, d.Close())
	wg.Wait()
	for range d.Events(t.Context()) {
		t.Error("an event of a closed device")
	}
}

// TestDeviceRemoved takes the RDMA device away while a queue pair is in use:
// calls fail with errors, nothing hangs, and all objects can be closed.
func TestDeviceRemoved(t *testing.T) {
	lab.RequireTopology(t, "wire")
	lab.NoLeftovers(t)
	lab.IP(t, "link", "add", "gone0", "type", "veth", "peer", "name", "gone1")
	defer lab.IP(t, "link", "del", "gone0")
	lab.IP(t, "addr", "add", "10.99.0.1/24", "dev", "gone0")
	lab.IP(t, "link", "set", "gone0", "up")
	lab.IP(t, "link", "set", "gone1", "up")
	out, err := exec.Command("rdma", "link", "add", "rxe_gone", "type", "rxe", "netdev", "gone0").CombinedOutput()
	require.NoError(t, err, "%s", out)

	d, err := verbs.Open("rxe_gone", verbs.DeviceConfig{})
	require.NoError(t, err)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	cq, err := d.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	gid, err := d.FindGID(verbs.GIDQuery{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: gid})
	require.NoError(t, err)
	self, err := qp.Endpoint()
	require.NoError(t, err)
	require.NoError(t, qp.Connect(self, verbs.ConnectConfig{}))
	batch, err := qp.NewBatch(1)
	require.NoError(t, err)

	waiting := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	go func() {
		var wcs [1]verbs.WC
		_, err := cq.Wait(ctx, wcs[:])
		waiting <- err
	}()
	ended := make(chan struct{})
	var fatal atomic.Bool
	events := d.Events(ctx)
	go func() {
		defer close(ended)
		for ev := range events {
			t.Log("event:", ev.Type)
			fatal.Store(fatal.Load() || ev.Type == verbs.EventDeviceFatal)
		}
	}()
	// The kernel waits for users, or cuts them off, depending on its version;
	// the command must not make us hang either way.
	del := exec.Command("rdma", "link", "del", "rxe_gone")
	require.NoError(t, del.Start())
	time.Sleep(time.Second)

	batch.Read(1, verbs.Signaled, mr.Region().At(0), mr.SGE(0, 8))
	_, err = batch.Post()
	t.Log("post:", err)
	other, err := pd.AllocMR(4096, verbs.MRConfig{})
	t.Log("register:", err)
	if err == nil {
		require.NoError(t, other.Close())
	}
	short, end := context.WithTimeout(ctx, 3*time.Second) // for a completion that may never come
	err = qp.Drain(short, func(*verbs.WC) {})
	end()
	t.Log("drain:", err)
	for _, c := range []interface{ Close() error }{qp, cq, mr, pd, d} {
		require.NoError(t, c.Close())
	}
	t.Log("wait:", <-waiting)
	<-ended
	require.NoError(t, del.Wait())
}

func TestDrain(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for _, two := range []bool{false, true} {
			name := typ.String() + " one queue"
			if two {
				name = typ.String() + " two queues"
			}
			t.Run(name, func(t *testing.T) { drain(t, typ, two) })
		}
	}
}

func drain(t *testing.T, typ verbs.QPType, two bool) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: typ}, verbs.CQConfig{Depth: 1024}, verbs.ConnectConfig{AckTimeout: time.Second})
	recvCQ := a.CQ
	if two {
		var err error
		recvCQ, err = a.Dev.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		defer recvCQ.Close()
	}
	qp, err := a.PD.CreateQP(verbs.QPConfig{Type: typ, SendCQ: a.CQ, RecvCQ: recvCQ, GID: a.QP.GID(), MaxSendWR: 16, MaxRecvWR: 16})
	require.NoError(t, err)
	defer qp.Close()
	recv, err := qp.NewRecvBatch(qp.MaxRecvWR())
	require.NoError(t, err)
	for i := range recv.Cap() {
		recv.Recv(uint64(1000+i), a.MR.SGE(0, 64))
	}
	posted, _ := recv.Post()
	batch, err := qp.NewBatch(qp.MaxSendWR())
	require.NoError(t, err)
	sends := 0
	if typ == verbs.UD {
		require.NoError(t, qp.Activate())
		for i := range 10 {
			batch.SendTo(uint64(i), verbs.Signaled, rig.Dest(t, a, b), a.MR.SGE(0, 64))
		}
		sends, err = batch.Post()
		require.NoError(t, err)
	} else {
		// The peer is not connected to us: what is sent stays outstanding (RC),
		// or is lost (UC).
		require.NoError(t, qp.Connect(b.Endpoint(t), verbs.ConnectConfig{AckTimeout: 10 * time.Second}))
		for i := range batch.Cap() {
			batch.Send(uint64(i), verbs.Signaled, a.MR.SGE(0, 64))
		}
		sends, err = batch.Post()
		require.NoError(t, err)
	}
	if !two {
		require.ErrorIs(t, qp.Drain(t.Context(), nil), verbs.ErrInUse, "the queue has another user")
	}
	seen := map[uint64]int{}
	start := time.Now()
	require.NoError(t, qp.Drain(t.Context(), func(wc *verbs.WC) { seen[wc.ID()]++ }))
	require.Less(t, time.Since(start), 3*time.Second)
	require.Len(t, seen, posted+sends, "each completion comes once, and the marks not at all")
	for id, n := range seen {
		require.Equal(t, 1, n, "id %d", id)
	}
	require.Equal(t, verbs.StateError, qp.State())
	require.NoError(t, qp.Drain(t.Context(), func(*verbs.WC) { t.Error("a completion after the last") }))
	require.NoError(t, qp.Close())
	require.ErrorIs(t, qp.Drain(t.Context(), func(*verbs.WC) {}), verbs.ErrClosed)
}

func TestDrainReset(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	require.NoError(t, a.QP.ToReset())
	require.NoError(t, a.QP.Drain(t.Context(), nil), "nothing is in it")
}

// TestEventsDuringTeardown: objects are closed while events about them are on
// their way. The kernel holds up their end until the events are acknowledged.
func TestEventsDuringTeardown(t *testing.T) {
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	var limits atomic.Int64
	var wg sync.WaitGroup
	events := b.Dev.Events(ctx)
	wg.Go(func() {
		for ev := range events {
			if ev.Type == verbs.EventSRQLimit {
				limits.Add(1)
			}
		}
	})
	// Those that were not read by the end of their object go with it.
	const least, most = 20, 10_000
	for round := 0; round < least || round < most && limits.Load() == 0; round++ {
		srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
		require.NoError(t, err)
		recv, err := srq.NewRecvBatch(4)
		require.NoError(t, err)
		for i := range 4 {
			recv.Recv(uint64(i), b.MR.SGE(0, 64))
		}
		_, err = recv.Post()
		require.NoError(t, err)
		require.NoError(t, srq.Arm(4))
		from, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: p[0].GID})
		require.NoError(t, err)
		to, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, SRQ: srq, GID: p[1].GID})
		require.NoError(t, err)
		e, err := from.Endpoint()
		require.NoError(t, err)
		require.NoError(t, to.Connect(e, verbs.ConnectConfig{}))
		e, err = to.Endpoint()
		require.NoError(t, err)
		require.NoError(t, from.Connect(e, verbs.ConnectConfig{}))
		batch, err := from.NewBatch(1)
		require.NoError(t, err)
		batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
		_, err = batch.Post()
		require.NoError(t, err)
		require.NoError(t, a.Wait(t, 1)[0].Err())
		require.NoError(t, b.Wait(t, 1)[0].Err())
		require.NoError(t, to.Close())
		require.NoError(t, srq.Close())
		require.NoError(t, from.Close())
	}
	cancel()
	wg.Wait()
	require.NotZero(t, limits.Load())
}
