//go:build linux

package verbs_test

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func TestDriverQueuePairsAreRefused(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	f, err := s.Dev.Features()
	require.NoError(t, err)
	if f.Mlx5 != nil || f.EFA != nil {
		t.Skip("this device has them")
	}
	srq, err := s.PD.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	defer srq.Close()
	for _, cfg := range []verbs.QPConfig{{Type: verbs.DCI}, {Type: verbs.DCI, Streams: 4}, {Type: verbs.DCT, SRQ: srq}, {Type: verbs.SRD}, {Ops: verbs.OpMasked}} {
		cfg.SendCQ, cfg.GID = s.CQ, p[0].GID
		_, err := s.PD.CreateQP(cfg)
		feature := map[verbs.QPType]string{verbs.DCI: "DC initiator, streams", verbs.DCT: "DC target", verbs.SRD: "EFA SRD"}[cfg.Type]
		if feature == "" {
			feature = "masked atomics, native"
		}
		require.True(t, refused(t, feature, err))
	}
	for _, cfg := range []verbs.QPConfig{{Type: verbs.DCI, Streams: 3}, {Type: verbs.DCT}, {Type: verbs.SRD, SRQ: srq}, {Type: 77}} {
		cfg.SendCQ, cfg.GID = s.CQ, p[0].GID
		_, err := s.PD.CreateQP(cfg)
		require.ErrorIs(t, err, verbs.ErrAttributes, "%v", cfg.Type)
	}
}

func TestDomainsModerationRate(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	td, err := a.Dev.AllocTD()
	if !refused(t, "thread domain", err) {
		pd, err := a.PD.ParentDomain(td)
		require.NoError(t, err)
		require.ErrorIs(t, td.Close(), verbs.ErrInUse)
		require.NoError(t, pd.Close())
		require.NoError(t, td.Close())
	}
	pd, err := a.PD.ParentDomain(nil)
	if !refused(t, "parent domain", err) {
		require.NoError(t, pd.Close())
	}
	refused(t, "moderation", a.CQ.Moderate(4, 100*time.Microsecond))
	require.ErrorIs(t, a.CQ.Moderate(-1, 0), verbs.ErrAttributes)
	require.ErrorIs(t, a.CQ.Moderate(1, time.Hour), verbs.ErrAttributes)
	refused(t, "rate limit", experimental.SetRate(a.QP, 1000, 0, 0))
}

func TestResizeCQ(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Depth: 16}, verbs.ConnectConfig{})
	batch := a.Batch(t, 8)
	for i := range 8 {
		batch.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	}
	_, err := batch.Post()
	require.NoError(t, err)
	before := a.CQ.Depth()
	err = a.CQ.Resize(500)
	if refused(t, "resize", err) {
		return
	}
	require.GreaterOrEqual(t, a.CQ.Depth(), 500)
	require.Greater(t, a.CQ.Depth(), before)
	for i, wc := range a.Wait(t, 8) {
		require.EqualValues(t, i, wc.ID(), "what was in it stays")
	}
	require.ErrorIs(t, a.CQ.Resize(0), verbs.ErrAttributes)
	require.ErrorIs(t, a.CQ.Resize(1<<30), verbs.ErrAttributes)
}

func TestMemoryKinds(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close()
	_, err = experimental.RegisterDMABuf(a.PD, f, 0, 4096, verbs.MRConfig{})
	require.Error(t, err, "no dmabuf")
	if errors.Is(err, verbs.ErrUnsupported) {
		refused(t, "dmabuf", err)
	}

	lazy, err := a.PD.AllocMR(4096, verbs.MRConfig{Access: experimental.OnDemand})
	if features, ferr := a.Dev.Features(); ferr == nil && !features.OnDemand {
		refused(t, "on-demand paging", err)
	} else {
		require.NoError(t, err)
		require.NoError(t, experimental.Prefetch(lazy, 0, 4096, experimental.AdvisePrefetchWrite, true))
		require.NoError(t, lazy.Close())
	}
	all, err := experimental.RegisterAddressSpace(a.PD, verbs.MRConfig{})
	if !refused(t, "implicit on-demand paging", err) {
		require.NoError(t, all.Close())
	}
	raw, err := a.PD.CreateQP(verbs.QPConfig{Type: verbs.RawPacket, SendCQ: a.CQ, GID: a.QP.GID()})
	if !refused(t, "raw packet queue pairs", err) {
		require.NoError(t, raw.Activate())
		require.NoError(t, raw.Close())
	}
	refused(t, "prefetch", experimental.Prefetch(a.MR, 0, 4096, experimental.AdvisePrefetch, true))
	require.ErrorIs(t, experimental.Prefetch(a.MR, -1, 1, experimental.AdvisePrefetch, true), verbs.ErrRange)

	// Rights taken back from a region hold for requests that come later.
	other, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	require.NoError(t, err)
	defer other.Close()
	if refused(t, "re-registration", other.SetAccess(verbs.RemoteRead)) {
		return
	}
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, other.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	batch.Write(2, verbs.Signaled, other.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	wc := a.Wait(t, 1)[0]
	require.ErrorIs(t, wc.Err(), verbs.WCRemoteAccess)

	second, err := b.Dev.AllocPD()
	require.NoError(t, err)
	if !refused(t, "re-registration", other.MoveTo(second)) {
		require.ErrorIs(t, second.Close(), verbs.ErrInUse)
	}
	require.NoError(t, other.Close())
	require.NoError(t, second.Close())
}

func TestSharedReceiveQueue(t *testing.T) {
	p := rig.Ports(t)
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	srq, err := b.PD.CreateSRQ(verbs.SRQConfig{MaxWR: 64})
	require.NoError(t, err)
	defer srq.Close()
	recv, err := srq.NewRecvBatch(16)
	require.NoError(t, err)
	for i := range 16 {
		recv.Recv(uint64(i), b.MR.SGE(i*64, 64))
	}
	n, err := recv.Post()
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.NoError(t, srq.Arm(8))
	limit, err := srq.Limit()
	require.NoError(t, err)
	require.Equal(t, 8, limit)
	events := b.Dev.Events(t.Context())

	var senders []*rig.Side
	for range 2 {
		a := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
		qp, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, SRQ: srq, GID: p[1].GID})
		require.NoError(t, err)
		defer qp.Close()
		_, err = qp.NewRecvBatch(1)
		require.ErrorIs(t, err, verbs.ErrAttributes, "it has no receive queue of its own")
		remote, err := qp.Endpoint()
		require.NoError(t, err)
		require.NoError(t, a.QP.Connect(remote, verbs.ConnectConfig{}))
		require.NoError(t, qp.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
		senders = append(senders, a)
	}
	require.ErrorIs(t, srq.Close(), verbs.ErrInUse)
	for i := range 12 {
		a := senders[i%2]
		batch := a.Batch(t, 1)
		binary.NativeEndian.PutUint64(a.MR.Bytes(), uint64(i))
		batch.Send(uint64(i), verbs.Signaled, a.MR.SGE(0, 8))
		a.Do(t, batch, 1)
		wc := b.Wait(t, 1)[0]
		require.NoError(t, wc.Err())
		require.EqualValues(t, i, wc.ID(), "receives are taken in order, whoever needs one")
		require.EqualValues(t, i, verbs.Uint64(b.MR.Bytes(), i*64))
	}
	for ev := range events {
		if ev.Type == verbs.EventSRQLimit {
			require.Same(t, srq, ev.SRQ)
			break
		}
	}
	big, err := srq.NewRecvBatch(srq.MaxWR())
	require.NoError(t, err)
	for range 4 { // devices round the capacity up
		for i := range big.Cap() {
			big.Recv(uint64(i), b.MR.SGE(0, 64))
		}
		if n, err = big.Post(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Less(t, n, big.Cap())
	require.Error(t, srq.Arm(1<<20))
}

func TestWindows(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := b.PD.AllocMR(8192, verbs.MRConfig{Access: verbs.BindWindow})
	require.NoError(t, err)
	defer mr.Close()
	copy(mr.Bytes()[4096:], "seen through a window")

	read := func(r verbs.Region, off uint64) verbs.WC {
		batch := a.Batch(t, 1)
		batch.Read(1, verbs.Signaled, r.At(off), a.MR.SGE(0, 21))
		_, err := batch.Post()
		require.NoError(t, err)
		return a.Wait(t, 1)[0]
	}

	w1, err := b.PD.AllocWindow(verbs.Window1)
	if refused(t, "memory windows, type 1", err) {
		return
	}
	require.ErrorIs(t, w1.Bind(b.QP, 1, verbs.Signaled, b.MR, 0, 64, verbs.RemoteRead), verbs.ErrAttributes, "a region without BindWindow")
	require.ErrorIs(t, w1.Bind(b.QP, 1, verbs.Signaled, mr, 8000, 1000, verbs.RemoteRead), verbs.ErrRange)
	require.NoError(t, w1.Bind(b.QP, 1, verbs.Signaled, mr, 4096, 1000, verbs.RemoteRead))
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	require.Equal(t, verbs.WCBindMW, wc.Opcode())
	require.ErrorIs(t, mr.Close(), verbs.ErrInUse, "a window stands on it")
	wc = read(w1.Region(), 0)
	require.NoError(t, wc.Err())
	require.Equal(t, "seen through a window", string(a.MR.Bytes()[:21]))
	require.NoError(t, w1.Close())

	w2, err := b.PD.AllocWindow(verbs.Window2)
	require.NoError(t, err)
	bind := b.Batch(t, 2)
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w1, MR: mr, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	_, err = bind.Post()
	require.ErrorIs(t, err, verbs.ErrAttributes, "type 1 in a batch")
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w2, MR: mr, Offset: 4096, Length: 1000, Access: verbs.RemoteRead | verbs.RemoteWrite}})
	b.Do(t, bind, 1)
	region := w2.Region()
	wc = read(region, 0)
	require.NoError(t, wc.Err())
	bind.Add(verbs.WR{ID: 3, Flags: verbs.Signaled, Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: region.RKey}})
	wcs := b.Do(t, bind, 1)
	require.Equal(t, verbs.WCLocalInv, wcs[0].Opcode())
	wc = read(region, 0)
	require.Error(t, wc.Err(), "the key is dead")
	require.NoError(t, w2.Close())
	require.NoError(t, mr.Close())
}

// What a request points to is closed before the batch is posted.
func TestBoundToNothing(t *testing.T) {
	_, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	region := func() *verbs.MR {
		mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.Close()) })
		return mr
	}
	w, err := b.PD.AllocWindow(verbs.Window2)
	if refused(t, "memory windows, type 2", err) {
		return
	}
	first, second := b.Batch(t, 1), b.Batch(t, 1)
	left, mr := region(), region()
	first.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: left, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	require.ErrorIs(t, left.Close(), verbs.ErrInUse)
	second.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 0, Length: 64, Access: verbs.RemoteRead}})
	require.NoError(t, left.Close(), "the window has gone elsewhere")
	n, err := first.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Zero(t, n)

	require.NoError(t, w.Close())
	n, err = second.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorContains(t, err, "mw")
	require.Zero(t, n)
}

func TestSendInvalidate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	b.Recv(t, 1, 64)
	mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow})
	require.NoError(t, err)
	defer mr.Close()
	w, err := b.PD.AllocWindow(verbs.Window2)
	if refused(t, "memory windows, type 2", err) {
		return
	}
	bind := b.Batch(t, 1)
	bind.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 0, Length: 4096, Access: verbs.RemoteRead}})
	b.Do(t, bind, 1)
	batch := a.Batch(t, 1)
	batch.Add(verbs.WR{ID: 5, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: w.Region().RKey}, Local: []verbs.SGE{a.MR.SGE(0, 8)}})
	a.Do(t, batch, 1)
	wc := b.Wait(t, 1)[0]
	require.NoError(t, wc.Err())
	if key, ok := wc.Invalidated(); ok {
		require.Equal(t, w.Region().RKey, key)
	} else {
		t.Log("the provider does not tell of the invalidation")
	}
	_, ok := wc.Imm()
	require.False(t, ok)
	batch.Read(6, verbs.Signaled, w.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.Error(t, a.Wait(t, 1)[0].Err(), "the key is dead")
	require.NoError(t, w.Close())
	require.NoError(t, mr.Close())
}

func TestFeatures(t *testing.T) {
	s := rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
	f, err := s.Dev.Features()
	require.NoError(t, err)
	t.Logf("%+v", f)
	_, err = s.Dev.Mlx5()
	if err != nil {
		require.True(t, errors.Is(err, verbs.ErrUnsupported))
	}
}
