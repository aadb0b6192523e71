//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func TestWrongTransitionsAndAttributes(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{KeepReset: true}, verbs.CQConfig{})
	require.Equal(t, verbs.StateReset, s.QP.State())

	err := s.QP.Modify(verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState)
	require.ErrorIs(t, err, verbs.ErrState)
	require.ErrorContains(t, err, "no transition RESET to RTS")
	require.NoError(t, s.QP.Init())
	err = s.QP.Modify(verbs.QPAttr{State: verbs.StateRTR}, verbs.AttrState|verbs.AttrPathMTU)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.ErrorContains(t, err, "missing: AV|RQ_PSN")
	require.Equal(t, verbs.StateInit, s.QP.State(), "nothing was done")

	// What only the device can know: a GID index that does not exist.
	e := s.Endpoint(t)
	err = s.QP.Modify(verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU1024, DestQPN: 1, MinRNRTimer: 12,
		AH: verbs.AHAttr{GID: e.GID, SGIDIndex: 250, Port: 1}},
		verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestReadAtomic|verbs.AttrMinRNRTimer)
	require.Error(t, err)
	require.ErrorContains(t, err, "INIT to RTR")
	require.ErrorContains(t, err, "does the GID index still exist?")
	var errno syscall.Errno
	require.True(t, errors.As(err, &errno), "the errno is in the chain")

	bad := e
	bad.Type = verbs.UC
	require.ErrorIs(t, s.QP.Connect(bad, verbs.ConnectConfig{}), verbs.ErrAttributes)
	bad = e
	bad.GID = verbs.GID{}
	require.ErrorIs(t, s.QP.Connect(bad, verbs.ConnectConfig{}), verbs.ErrNoGID)
	for _, c := range []verbs.ConnectConfig{{MTU: 9}, {Retries: 8}, {RNRRetries: -2}, {AckTimeout: -1}, {MaxReads: 1000}, {MaxReads: -2}} {
		require.ErrorIs(t, s.QP.Connect(e, c), verbs.ErrAttributes, "%+v", c)
	}
	require.ErrorIs(t, s.QP.Activate(), verbs.ErrAttributes)

	require.NoError(t, s.QP.ToError())
	require.ErrorIs(t, s.QP.Connect(e, verbs.ConnectConfig{}), verbs.ErrState)
	require.NoError(t, s.QP.ToReset())
	require.NoError(t, s.QP.Init())
	require.NoError(t, s.QP.Connect(e, verbs.ConnectConfig{}), "usable again, connected to itself")
	a, err := s.QP.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, a.State)
	require.Equal(t, s.QP.Num(), a.DestQPN)
	require.Equal(t, e.GID, a.AH.GID)
	require.Equal(t, e.MTU, a.PathMTU)
}

// A queue pair without READs and atomics, in either direction.
func TestConnectWithoutReads(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{MaxReads: -1})
	q, err := a.QP.Query()
	require.NoError(t, err)
	require.Zero(t, q.MaxReadAtomic)
	require.Zero(t, q.MaxDestReadAtomic)
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
}

// No side issues more READs at a time than the other executes, whatever each was told.
func TestReadsAreNegotiated(t *testing.T) {
	p := rig.Ports(t)
	a, b := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{}), rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	for _, c := range []struct{ one, other, want int }{{0, 2, 2}, {2, 0, 2}, {3, 1, 1}, {-1, 0, 0}, {0, 0, 16}, {16, -1, 0}} {
		one, other := net.Pipe()
		ls, errs := links(t, t.Context(), [2]net.Conn{one, other}, [2]verbs.LinkConfig{
			{PD: a.PD, QP: verbs.QPConfig{GID: p[0].GID}, Connect: verbs.ConnectConfig{MaxReads: c.one}},
			{PD: b.PD, QP: verbs.QPConfig{GID: p[1].GID}, Connect: verbs.ConnectConfig{MaxReads: c.other}},
		})
		for i, l := range ls {
			require.NoError(t, errs[i])
			got, err := l.QP().Query()
			require.NoError(t, err)
			require.EqualValues(t, c.want, got.MaxReadAtomic, "%+v", c)
			require.EqualValues(t, c.want, got.MaxDestReadAtomic, "%+v", c)
		}
	}
}

// A closed region has no bytes, and what names it is refused before a device
// sees its key.
func TestClosedRegionNamesNothing(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := a.PD.AllocMR(4096, verbs.MRConfig{})
	require.NoError(t, err)
	require.Len(t, mr.Bytes(), 4096)
	require.NoError(t, mr.Close())
	require.Nil(t, mr.Bytes())
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, b.MR.Region().At(0), mr.SGE(0, 8))
	_, err = batch.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	recv, err := a.QP.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(1, mr.SGE(0, 8))
	_, err = recv.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorIs(t, newRequester(t, a, verbs.RequesterConfig{}).Read(t.Context(), b.MR.Region().At(0), mr.SGE(0, 8)), verbs.ErrClosed)
	require.NoError(t, a.QP.Err(), "nothing was posted")
}

// A part of a region keeps its own bounds.
func TestPartOfRegion(t *testing.T) {
	r := verbs.Region{Addr: 4096, Length: 100, RKey: 7}
	require.Equal(t, verbs.Region{Addr: 4106, Length: 20, RKey: 7}, r.Slice(10, 20))
	require.Equal(t, verbs.Region{Addr: 4196, RKey: 7}, r.Slice(100, 0))
	require.Equal(t, verbs.Remote{Addr: 4125, RKey: 7}, r.Slice(10, 20).At(19))
	none := verbs.Region{}
	require.Equal(t, none.At(0), r.Slice(10, 20).At(20))
	require.Equal(t, r.At(100), r.Slice(100, 0).At(0), "the end is no place")
	for _, s := range []verbs.Region{r.Slice(101, 0), r.Slice(90, 11), r.Slice(1, ^uint64(0)), r.Slice(^uint64(0), 2)} {
		require.Equal(t, none, s)
	}
}

// Send queue drain: RTS to SQD and back.
func TestDrainState(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	require.NoError(t, a.QP.Modify(verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
	require.Eventually(t, func() bool {
		q, err := a.QP.Query()
		return err == nil && q.State == verbs.StateSQD && !q.SQDraining
	}, rig.Timeout, time.Millisecond)
	require.NoError(t, a.QP.Modify(verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
}

func TestPostInWrongState(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{KeepReset: true}, verbs.CQConfig{})
	batch := s.Batch(t, 1)
	batch.Send(1, 0, s.MR.SGE(0, 8))
	_, err := batch.Post()
	require.ErrorIs(t, err, verbs.ErrState)
	require.ErrorContains(t, err, "it is in RESET")
	recv, err := s.QP.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(1, s.MR.SGE(0, 8))
	_, err = recv.Post()
	require.ErrorIs(t, err, verbs.ErrState)
}

func TestClosedObjects(t *testing.T) {
	p := rig.Ports(t)
	dev, err := verbs.Open(p[0].Name, verbs.DeviceConfig{})
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	cq, err := dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.MRConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: p[0].GID})
	require.NoError(t, err)
	self, err := qp.Endpoint()
	require.NoError(t, err)
	require.NoError(t, qp.Connect(self, verbs.ConnectConfig{}))
	batch, err := qp.NewBatch(1)
	require.NoError(t, err)
	ah, err := pd.CreateAH(verbs.AHAttr{GID: self.GID, SGIDIndex: p[0].GID.Index, Port: 1})
	require.NoError(t, err)

	require.ErrorIs(t, dev.Close(), verbs.ErrInUse)
	require.ErrorIs(t, pd.Close(), verbs.ErrInUse)
	require.ErrorContains(t, pd.Close(), "1 qp")
	require.ErrorIs(t, cq.Close(), verbs.ErrInUse)

	require.NoError(t, ah.Close())
	require.NoError(t, ah.Close())
	require.NoError(t, qp.Close())
	require.NoError(t, qp.Close(), "twice")
	batch.Send(1, 0, mr.SGE(0, 8))
	_, err = batch.Post()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.ErrorIs(t, qp.ToError(), verbs.ErrClosed)

	require.NoError(t, cq.Close())
	require.NoError(t, cq.Close())
	var wcs [1]verbs.WC
	_, err = cq.Poll(wcs[:])
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = cq.Wait(context.Background(), wcs[:])
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: p[0].GID})
	require.ErrorIs(t, err, verbs.ErrClosed)

	require.NoError(t, mr.Close())
	require.NoError(t, mr.Close())
	_, err = mr.Load64(0)
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NoError(t, pd.Close())
	_, err = pd.AllocMR(4096, verbs.MRConfig{})
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close())
	_, err = dev.AllocPD()
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = dev.Port(1)
	require.ErrorIs(t, err, verbs.ErrClosed)
}

func TestOpenDefault(t *testing.T) {
	p := rig.Ports(t)
	opens := func(name string) {
		d, err := verbs.OpenDefault(verbs.DeviceConfig{})
		require.NoError(t, err)
		require.Equal(t, name, d.Name())
		require.NoError(t, d.Close())
	}
	t.Setenv("RDMA_DEVICE", p[1].Name)
	opens(p[1].Name)
	t.Setenv("RDMA_DEVICE", "no_such_device")
	_, err := verbs.OpenDefault(verbs.DeviceConfig{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	t.Setenv("RDMA_DEVICE", "")
	first, err := verbs.Devices()
	require.NoError(t, err)
	opens(first[0].Name) // all ports of the lab are active
}

func TestBadArguments(t *testing.T) {
	p := rig.Ports(t)
	_, err := verbs.Open("no_such_device", verbs.DeviceConfig{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, p[0].Name, "it names the devices that there are")

	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	_, err = s.Dev.CreateCQ(verbs.CQConfig{Depth: 1 << 30})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = s.Dev.CreateCQ(verbs.CQConfig{Vector: 1 << 20})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = s.Dev.Port(77)
	require.Error(t, err)
	_, err = s.PD.CreateQP(verbs.QPConfig{})
	require.ErrorContains(t, err, "SendCQ is missing")
	_, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, MaxSendSGE: 10_000, GID: p[0].GID})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	require.ErrorContains(t, err, "10000+1 entries")
	_, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, Type: 99})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = s.PD.AllocMR(0, verbs.MRConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = s.PD.RegisterMR(nil, verbs.MRConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = s.PD.CreateAH(verbs.AHAttr{GID: p[0].GID.GID, SGIDIndex: 251, Port: 1})
	require.Error(t, err)

	other := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	if p[0].Name != p[1].Name {
		_, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: other.CQ})
		require.ErrorContains(t, err, "another device")
	}
	_, err = s.Dev.FindGID(verbs.GIDQuery{Port: 9})
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.ErrorContains(t, err, p[0].Addr().String(), "it names the GIDs that there are")
}

// Each wrong access at the peer gives its own status, and flushes the rest.
func TestWrongRemoteAccess(t *testing.T) {
	for _, c := range []struct {
		name string
		op   func(a, b *rig.Side, batch *verbs.Batch)
		want []verbs.WCStatus
	}{
		{"wrong rkey", func(a, b *rig.Side, batch *verbs.Batch) {
			r := b.MR.Region()
			r.RKey ^= 0x5a5a00
			batch.Read(1, verbs.Signaled, r.At(0), a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"beyond the end", func(a, b *rig.Side, batch *verbs.Batch) {
			batch.Write(1, verbs.Signaled, b.MR.Region().At(rig.BufSize-4), a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"before the start", func(a, b *rig.Side, batch *verbs.Batch) {
			r := b.MR.Region()
			batch.Read(1, verbs.Signaled, verbs.Remote{Addr: r.Addr - 8, RKey: r.RKey}, a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"wrong local key", func(a, b *rig.Side, batch *verbs.Batch) {
			s := a.MR.SGE(0, 8)
			s.LKey ^= 0x5a5a00
			batch.Write(1, verbs.Signaled, b.MR.Region().At(0), s)
			// The first is the specification's. rxe of Linux 6.1 says the second;
			// that of 6.12 enters the error state first, and then flushes the
			// culprit with all others.
		}, []verbs.WCStatus{verbs.WCLocalProtection, verbs.WCLocalQPOperation, verbs.WCFlushed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
			batch := a.Batch(t, 2)
			c.op(a, b, batch)
			batch.Write(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			_, err := batch.Post()
			require.NoError(t, err)
			wcs := a.Wait(t, 2)
			err = wcs[0].Err()
			require.Contains(t, c.want, wcs[0].Status())
			require.ErrorIs(t, err, wcs[0].Status())
			var wce *verbs.WCError
			require.True(t, errors.As(err, &wce))
			require.Equal(t, a.QP.Num(), wce.QPNum)
			require.EqualValues(t, 1, wce.ID)
			require.ErrorIs(t, wcs[1].Err(), verbs.WCFlushed)
			q, err := a.QP.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateError, q.State)
		})
	}
}

// A region without the right refuses although the rkey is right.
func TestAccessRights(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	ro, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, ro.Close()) }()
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, ro.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	batch.Write(2, verbs.Signaled, ro.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
}

// After Close an rkey that a peer still has is dead.
func TestClosedRegionIsGoneForPeers(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	region := mr.Region()
	require.NoError(t, mr.Close())
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, region.At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
}

func TestReceiverNotReady(t *testing.T) {
	conn := verbs.ConnectConfig{RNRRetries: 2, RNRTimer: 10 * time.Microsecond}
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, conn)
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRNRRetryExceeded)
}

// With retries without end, a receive that is posted late is no error.
func TestReceiverReadyLate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{RNRTimer: time.Millisecond})
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	b.Recv(t, 1, 64)
	wcs := a.Wait(t, 1)
	require.NoError(t, wcs[0].Err())
	wcs = b.Wait(t, 1)
	require.NoError(t, wcs[0].Err())
}

// A message longer than the receive hurts both sides, each in its own way.
func TestMessageLongerThanTheReceive(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	b.Recv(t, 1, 16)
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 64))
	_, err := batch.Post()
	require.NoError(t, err)
	// The first is the specification's, the second what rxe says.
	require.Contains(t, []verbs.WCStatus{verbs.WCRemoteInvalid, verbs.WCRemoteOperation}, a.Wait(t, 1)[0].Status())
	require.Error(t, b.Wait(t, 1)[0].Err())
}

// A peer that is gone shows within the configured time.
func TestDeadPeer(t *testing.T) {
	conn := verbs.ConnectConfig{AckTimeout: 8 * time.Millisecond, Retries: 3}
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, conn)
	require.NoError(t, b.QP.Close()) // its device does not respond for a queue pair that is gone
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	start := time.Now()
	_, err := batch.Post()
	require.NoError(t, err)
	wc := a.Wait(t, 1)[0]
	require.ErrorIs(t, wc.Err(), verbs.WCRetryExceeded)
	// Four transmissions; devices may take up to four times the timeout each.
	require.Less(t, time.Since(start), 4*4*16*time.Millisecond+2*time.Second)
}

// overruns is called before completions pile up, and returns a function that waits until there
// are too many: polling before would make room.
func overruns(t *testing.T, s *rig.Side) (wait func()) {
	t.Helper()
	events := s.Dev.Events(rig.Context(t))
	return func() {
		t.Helper()
		for ev := range events {
			if ev.Type == verbs.EventCQError && ev.CQ == s.CQ {
				return
			}
		}
		t.Fatal("the queue does not overrun")
	}
}

// Leaving a full completion queue unread breaks it, and says so.
func TestCompletionQueueOverrun(t *testing.T) {
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{MaxSendWR: 256}, verbs.CQConfig{Depth: 8})
	b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
	require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
	batch := a.Batch(t, 64)
	for i := range 64 {
		batch.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	}
	overrun := overruns(t, a)
	_, err := batch.Post()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Timeout)
	defer cancel()
	overrun()
	var wcs [4]verbs.WC
	got := 0
	for {
		n, err := a.CQ.Wait(ctx, wcs[:])
		got += n
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrOverrun)
			break
		}
	}
	require.Less(t, got, 64)
	require.GreaterOrEqual(t, got, 8, "what was in the queue can still be read")
}

func TestSendQueueFull(t *testing.T) {
	// A peer that is gone and a long timeout: nothing completes meanwhile.
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 4}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 4 * time.Second})
	require.NoError(t, b.QP.Close())
	batch := a.Batch(t, a.QP.MaxSendWR())
	posted := 0
	var err error
	for err == nil && posted < 10_000 {
		for range batch.Cap() {
			batch.Write(7, 0, b.MR.Region().At(0), a.MR.SGE(0, 8))
		}
		var n int
		n, err = batch.Post()
		posted += n
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.GreaterOrEqual(t, posted, 4)
}

func TestErrorStateFlushes(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	a.Recv(t, 5, 64)
	require.NoError(t, a.QP.ToError())
	for _, wc := range a.Wait(t, 5) {
		require.ErrorIs(t, wc.Err(), verbs.WCFlushed)
	}
	batch := a.Batch(t, 1)
	batch.Send(9, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err, "posting to a queue pair in error is allowed")
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCFlushed)
}

func TestWaitEndsEarly(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	var wcs [1]verbs.WC

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.CQ.Wait(ctx, wcs[:])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.CQ.Wait(ctx, wcs[:])
	require.ErrorIs(t, err, context.DeadlineExceeded, "and again")

	ctx2, cancel2 := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel2)
	_, err = s.CQ.Wait(ctx2, wcs[:])
	require.ErrorIs(t, err, context.Canceled, "another context, after one that ran out")

	cq, err := s.Dev.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := cq.Wait(context.Background(), wcs[:])
		done <- err
	}()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, cq.Close())
	require.ErrorIs(t, <-done, verbs.ErrClosed)

	polled, err := s.Dev.CreateCQ(verbs.CQConfig{PollOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, polled.Close()) }()
	_, err = polled.Wait(context.Background(), wcs[:])
	require.ErrorIs(t, err, verbs.ErrAttributes)
}

// No wake-up is lost: every message gets a reply before the next one, and both
// sides always park.
func TestEventsPingPong(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	a, b := rig.NewPair(t, verbs.QPConfig{MaxInline: 16}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// Each side serves rounds times: the first one then sees the last return.
	play := func(s *rig.Side, serves bool) error {
		batch, err := s.QP.NewBatch(1)
		if err != nil {
			return err
		}
		recv, err := s.QP.NewRecvBatch(1)
		if err != nil {
			return err
		}
		wcs := make([]verbs.WC, 4)
		send := func() error {
			batch.SendInline(1, verbs.Signaled, []byte("ball"))
			_, err := batch.Post()
			return err
		}
		for i := range rounds {
			recv.Recv(2, s.MR.SGE(0, 64))
			if _, err := recv.Post(); err != nil {
				return err
			}
			if serves {
				if err := send(); err != nil {
					return err
				}
			}
			for received := false; !received; {
				n, err := s.CQ.Wait(ctx, wcs)
				if err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
				for j := range wcs[:n] {
					if err := wcs[j].Err(); err != nil {
						return err
					}
					received = received || wcs[j].Opcode() == verbs.WCRecv
				}
			}
			if !serves {
				if err := send(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	var errB error
	wg.Go(func() { errB = play(b, false) })
	errA := play(a, true)
	wg.Wait()
	require.NoError(t, errors.Join(errA, errB))
}

// Waiting again with the same context allocates nothing, parked or not.
func TestWaitDoesNotAllocate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	batch := a.Batch(t, 1)
	wcs := make([]verbs.WC, 1)
	at, local := b.MR.Region().At(0), a.MR.SGE(0, 65536)
	allocs := testing.AllocsPerRun(100, func() {
		batch.Read(1, verbs.Signaled, at, local)
		if _, err := batch.Post(); err != nil {
			t.Error(err)
		}
		if _, err := a.CQ.Wait(ctx, wcs); err != nil {
			t.Error(err)
		}
	})
	require.Zero(t, allocs)
}

// Closing while others post and poll: an error for them, no crash, no hang.
func TestCloseUnderLoad(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), closeUnderLoad)
	}
}

func closeUnderLoad(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	var wg sync.WaitGroup
	for range 2 {
		batch := a.Batch(t, 1)
		wg.Go(func() {
			for {
				batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 64))
				if _, err := batch.Post(); errors.Is(err, verbs.ErrClosed) {
					return
				}
				runtime.Gosched()
			}
		})
		wg.Go(func() {
			wcs := make([]verbs.WC, 8)
			for {
				if _, err := a.CQ.Poll(wcs); err != nil {
					return
				}
				runtime.Gosched()
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, a.QP.Close())
	require.NoError(t, a.CQ.Close())
	wg.Wait()
}

// With the memory limit of an ordinary user the error says what to raise.
func TestMemlockLimit(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	if os.Geteuid() != 0 {
		t.Skip("needs root, to lower the limit and to come back")
	}
	// The limit does not bind a process with CAP_IPC_LOCK; it is this thread's
	// capabilities that count.
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			var old unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
				return err
			}
			defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
			if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: old.Max}); err != nil {
				return err
			}
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			if err := unix.Capget(&hdr, &data[0]); err != nil {
				return err
			}
			data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
			if err := unix.Capset(&hdr, &data[0]); err != nil {
				return err
			}
			mr, err := s.PD.AllocMR(16<<20, verbs.MRConfig{})
			if err == nil {
				return errors.Join(errors.New("registered beyond the limit"), mr.Close())
			}
			return err
		}()
	}()
	err := <-done
	require.ErrorIs(t, err, verbs.ErrMemlock)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.True(t, strings.Contains(err.Error(), "ulimit -l unlimited"), err)
}

func TestHugePages(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	mr, err := s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesTryHuge})
	require.NoError(t, err, "falls back to normal pages")
	require.Equal(t, 3<<20, mr.Len())
	require.NoError(t, mr.Close())
	mr, err = s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesHuge})
	if err != nil {
		require.ErrorContains(t, err, "nr_hugepages")
		return
	}
	require.NoError(t, mr.Close())
}
