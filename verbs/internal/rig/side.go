//go:build linux

package rig

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// Side is one end: a device and what is made on it.
type Side struct {
	Dev *verbs.Device
	PD  *verbs.PD
	CQ  *verbs.CQ
	QP  *verbs.QP
	MR  *verbs.MR
}

// BufSize is the size of a side's memory.
const BufSize = 1 << 20

// NewSide opens one end; everything is closed when the test ends.
func NewSide(t testing.TB, p Port, qc verbs.QPConfig, cc verbs.CQConfig) *Side {
	t.Helper()
	s := &Side{}
	var err error
	s.Dev, err = verbs.Open(p.Name, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Dev.Close()) })
	s.PD, err = s.Dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.PD.Close()) })
	s.CQ, err = s.Dev.CreateCQ(cc)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.CQ.Close()) })
	s.MR, err = s.PD.AllocMR(BufSize, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.MR.Close()) })
	qc.SendCQ, qc.GID = s.CQ, p.GID
	s.QP, err = s.PD.CreateQP(qc)
	if !lab.In() && errors.Is(err, verbs.ErrUnsupported) {
		t.Skip(err) // RC on EFA
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.QP.Close()) })
	return s
}

// Reset moves a queue pair to RESET that may be executing requests: by
// [verbs.QP.Quiesce] only where it has to, as the bare RESET is to be seen too.
func (s *Side) Reset() error {
	if driver.ResetRaces(s.Dev) {
		return s.QP.Quiesce()
	}
	return s.QP.ToReset()
}

// Endpoint is the side with its memory.
func (s *Side) Endpoint(t testing.TB) verbs.Endpoint {
	t.Helper()
	e, err := s.QP.Endpoint()
	require.NoError(t, err)
	e.Regions = []verbs.Region{s.MR.Region()}
	return e
}

// NewPair makes two connected ends (or two active ones, for UD).
func NewPair(t testing.TB, qc verbs.QPConfig, cc verbs.CQConfig, conn verbs.ConnectConfig) (a, b *Side) {
	t.Helper()
	p := Ports(t)
	a, b = NewSide(t, p[0], qc, cc), NewSide(t, p[1], qc, cc)
	if qc.Type == verbs.UD {
		require.NoError(t, a.QP.Activate())
		require.NoError(t, b.QP.Activate())
		return a, b
	}
	require.NoError(t, a.QP.Connect(b.Endpoint(t), conn))
	require.NoError(t, b.QP.Connect(a.Endpoint(t), conn))
	return a, b
}

// Batch makes a batch of n.
func (s *Side) Batch(t testing.TB, n int) *verbs.Batch {
	t.Helper()
	b, err := s.QP.NewBatch(n)
	require.NoError(t, err)
	return b
}

// Recv posts n receives of size bytes each, at offset id * size.
func (s *Side) Recv(t testing.TB, n, size int) {
	t.Helper()
	b, err := s.QP.NewRecvBatch(n)
	require.NoError(t, err)
	for i := range n {
		b.Recv(uint64(i), s.MR.SGE(i*size, size))
	}
	posted, err := b.Post()
	require.NoError(t, err)
	require.Equal(t, n, posted)
}

// Timeout bounds each wait; emulated machines are slow.
const Timeout = 30 * time.Second

// Wait takes exactly n completions.
func (s *Side) Wait(t testing.TB, n int) []verbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	out := make([]verbs.WC, n)
	for got := 0; got < n; {
		m, err := s.CQ.Wait(ctx, out[got:])
		require.NoError(t, err, "after %d of %d completions", got, n)
		got += m
	}
	return out
}

// Do posts a batch and requires that its n signaled requests succeed.
func (s *Side) Do(t testing.TB, b *verbs.Batch, n int) []verbs.WC {
	t.Helper()
	_, err := b.Post()
	require.NoError(t, err)
	wcs := s.Wait(t, n)
	for i := range wcs {
		require.NoError(t, wcs[i].Err())
	}
	return wcs
}

// Dest is the way from a to b for datagrams.
func Dest(t testing.TB, a, b *Side) verbs.Destination {
	t.Helper()
	e := b.Endpoint(t)
	path, err := a.QP.PathTo(e, verbs.ConnectConfig{})
	require.NoError(t, err)
	ah, err := a.PD.CreateAH(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	return verbs.Destination{AH: ah, QPN: e.QPN, QKey: e.QKey}
}

// Fill makes bytes of a seed.
func Fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// Echo sends each message back until its context ends.
func Echo(ctx context.Context, l *verbs.Link) error {
	mr, err := l.AllocMR(64, verbs.MRConfig{})
	if err != nil {
		return err
	}
	r, err := l.Requester()
	if err != nil {
		return err
	}
	for {
		m, err := l.Receiver().Receive(ctx, mr.Bytes())
		if err != nil {
			return err
		}
		if err := r.Send(ctx, mr.SGE(0, m.Len)); err != nil {
			return err
		}
	}
}
