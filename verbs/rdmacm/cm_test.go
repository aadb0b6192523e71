//go:build linux

package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

func TestConnect(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	var a, b rig.Side
	c, s, err := rig.Dialed(t, m,
		rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: a.Setup(t, 0), PrivateData: []byte("hello"), AckTimeout: time.Second}, TOS: 32},
		rdmacm.ConnConfig{Setup: b.Setup(t, 4), PrivateData: []byte("welcome"), AckTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, "hello", string(s.PrivateData()[:5]))
	require.Equal(t, "welcome", string(c.PrivateData()[:7]))
	require.Equal(t, p[1].Addr(), c.RemoteAddr().Addr())
	require.Equal(t, c.LocalAddr(), s.RemoteAddr())
	require.Equal(t, p[0].Name, c.Device().Name())
	require.Equal(t, p[1].Name, s.Device().Name())
	require.NoError(t, c.Err())
	require.ErrorIs(t, c.Device().Close(), verbs.ErrInUse)
	require.ErrorIs(t, m.Close(), verbs.ErrInUse)
	attr, err := c.QP().Query()
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, attr.State)
	require.Equal(t, verbs.AckTimeoutFor(time.Second), attr.Timeout)
	require.EqualValues(t, 16, attr.MaxReadAtomic)
	require.EqualValues(t, 32, attr.AH.TrafficClass)
	accepted, err := s.QP().Query()
	require.NoError(t, err)
	require.Equal(t, verbs.AckTimeoutFor(100*time.Millisecond), accepted.Timeout, "each side has its own")

	copy(a.MR.Bytes(), "over the wire")
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 13))
	a.Do(t, batch, 1)
	wc := b.Wait(t, 1)
	require.NoError(t, wc[0].Err())
	require.Equal(t, "over the wire", string(b.MR.Bytes()[:13]))
	batch.Read(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(100, 13))
	a.Do(t, batch, 1)
	require.Equal(t, "over the wire", string(a.MR.Bytes()[100:113]))

	require.NoError(t, c.Disconnect(ctx))
	<-s.Done()
	require.ErrorIs(t, s.Err(), rdmacm.ErrDisconnected)
	wc = b.Wait(t, 3)
	require.ErrorIs(t, wc[0].Err(), verbs.WCFlushed, "receives that nobody will fill are flushed")
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	require.NoError(t, c.Close(), "closing twice")
	require.ErrorIs(t, s.Disconnect(ctx), nil)
}

// Without a Setup the connection has all that it needs, and closes it.
func TestDefaultQueuePair(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	a, b, err := rig.Dialed(t, m, rdmacm.DialConfig{}, rdmacm.ConnConfig{})
	require.NoError(t, err)
	require.Equal(t, verbs.StateRTS, a.QP().State())
	require.NoError(t, b.Close())
	<-a.Done()
	require.ErrorIs(t, a.Err(), rdmacm.ErrDisconnected)
}

func TestReject(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Reject([]byte("no room"))
		}
		if err != nil {
			t.Error(err)
		}
	}()
	_, err = m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{})
	var rejected *rdmacm.RejectedError
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, 28, rejected.Reason)
	require.Equal(t, "no room", string(rejected.PrivateData[:7]))
	require.NotErrorIs(t, err, syscall.ECONNREFUSED)

	// Requests that were not accepted are rejected with the listener's end.
	failed := make(chan error, 1)
	go func() {
		_, err := m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{})
		failed <- err
	}()
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, l.Close())
	require.ErrorAs(t, <-failed, &rejected)

	_, err = m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "nobody listens any more")
	require.ErrorContains(t, err, "no listener there")
}

func TestBacklog(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{Backlog: 1})
	require.NoError(t, err)
	results := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{})
			results <- err
		}()
	}
	var rejected *rdmacm.RejectedError
	require.ErrorAs(t, <-results, &rejected, "no room for all of them")
	require.ErrorAs(t, <-results, &rejected)
	require.NoError(t, l.Close())
	require.ErrorAs(t, <-results, &rejected)
}

func TestSetupFails(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	mine := errors.New("mine")
	_, _, err := rig.Dialed(t, m, rdmacm.DialConfig{}, rdmacm.ConnConfig{Setup: func(*rdmacm.Setup) error { return mine }})
	var rejected *rdmacm.RejectedError
	require.ErrorIs(t, err, mine)
	require.ErrorAs(t, err, &rejected)
	_, _, err = rig.Dialed(t, m, rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{PrivateData: make([]byte, rdmacm.MaxRequestData+1)}}, rdmacm.ConnConfig{})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	var other rig.Side
	_, _, err = rig.Dialed(t, m, rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: func(c *rdmacm.Setup) error {
		other = *rig.NewSide(t, rig.Ports(t)[0], verbs.QPConfig{}, verbs.CQConfig{})
		c.QP = other.QP
		return nil
	}}}, rdmacm.ConnConfig{})
	require.ErrorContains(t, err, "queue pair of another device")
}

func TestWaitsEnd(t *testing.T) {
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	// An unused address of the wire.
	_, err := m.Dial(ctx, "10.77.0.99:1", rdmacm.DialConfig{Local: netip.AddrPortFrom(p[0].Addr(), 0)})
	require.Error(t, err)
	if !errors.Is(err, verbs.ErrUnreachable) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	_, err = m.Dial(context.Background(), "10.77.0.2", rdmacm.DialConfig{})
	require.ErrorContains(t, err, "missing port")
	_, err = m.Dial(ctx, "10.77.0.2:1", rdmacm.DialConfig{})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	_, err = m.Listen(l.Addr().String(), rdmacm.ListenConfig{})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = l.Accept(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept(context.Background())
		ended <- err
	}()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, verbs.ErrClosed)
	require.NoError(t, l.Close())
	require.NoError(t, m.Close())
	_, err = m.Dial(context.Background(), "10.77.0.2:1", rdmacm.DialConfig{})
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// Two managers share the devices; the last one gives them back.
func TestSharedDevice(t *testing.T) {
	p := rig.CMPorts(t)
	a, b := rig.NewCM(t), rig.NewCM(t)
	da, err := a.Device(p[0].Name)
	require.NoError(t, err)
	db, err := b.Device(p[0].Name)
	require.NoError(t, err)
	require.Same(t, da, db)
	pd, err := da.AllocPD()
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.ErrorIs(t, b.Close(), verbs.ErrInUse)
	require.NoError(t, pd.Close())
	require.NoError(t, b.Close())
	_, err = rig.NewCM(t).Device("nothing")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
}

// Many connections at once, made and ended in any order.
func TestMany(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	const n = 12
	var serving, dialing sync.WaitGroup
	serving.Go(func() {
		for range n {
			r, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			serving.Go(func() {
				c, err := r.Accept(ctx, rdmacm.ConnConfig{})
				if err != nil {
					t.Error(err)
					return
				}
				<-c.Done()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	for range n {
		dialing.Go(func() {
			c, err := m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{Local: netip.AddrPortFrom(p[0].Addr(), 0)})
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	dialing.Wait()
	serving.Wait()
	require.NoError(t, l.Close())
}

// A queue pair that dies is the end of its connection, on both sides.
func TestConnEndsWithItsQueuePair(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	var a, b rig.Side
	c, s, err := rig.Dialed(t, m,
		rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{Setup: a.Setup(t, 0)}},
		rdmacm.ConnConfig{Setup: b.Setup(t, 0)})
	require.NoError(t, err)
	r, err := verbs.NewRequester(c.QP(), verbs.RequesterConfig{})
	require.NoError(t, err)
	defer r.Close()
	wrong := b.MR.Region()
	wrong.RKey ^= 0xff00
	err = r.Read(t.Context(), wrong.At(0), a.MR.SGE(0, 8))
	require.ErrorIs(t, err, verbs.WCRemoteAccess)
	require.ErrorContains(t, err, s.LocalAddr().String())
	for _, conn := range []*rdmacm.Conn{c, s} {
		select {
		case <-conn.Done():
		case <-time.After(rig.Timeout):
			t.Fatal("nobody noticed")
		}
	}
	require.Error(t, c.Err()) // its own, or the peer's goodbye, whichever came first
	require.Error(t, s.Err())
	select {
	case <-s.QP().Done():
	case <-time.After(rig.Timeout):
		t.Fatal("the queue pair was not told")
	}
	require.Error(t, s.QP().Err())
}

// The queue that a connection makes for itself holds all that its queue pair
// may have outstanding.
func TestOwnQueueHoldsEverything(t *testing.T) {
	rig.CMPorts(t)
	const depth = 1000
	a, b, err := rig.Dialed(t, rig.NewCM(t), rdmacm.DialConfig{ConnConfig: rdmacm.ConnConfig{QP: verbs.QPConfig{MaxSendWR: depth, MaxRecvWR: depth}}}, rdmacm.ConnConfig{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, a.CQ().Depth(), a.QP().MaxSendWR()+a.QP().MaxRecvWR())
	recvs, err := a.QP().NewRecvBatch(depth)
	require.NoError(t, err)
	for range depth {
		recvs.Recv(1)
	}
	_, err = recvs.Post()
	require.NoError(t, err)
	require.NoError(t, b.Close()) // all are flushed
	<-a.Done()
	ctx, wcs := rig.Context(t), make([]verbs.WC, depth)
	for got := 0; got < depth; {
		n, err := a.CQ().Wait(ctx, wcs)
		require.NoError(t, err, "after %d", got)
		got += n
	}
}
