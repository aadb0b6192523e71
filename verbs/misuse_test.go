//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
