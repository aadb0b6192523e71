//go:build linux

package verbs_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// newCM opens a connection manager that closes with the test.
func newCM(t testing.TB) *verbs.CM {
	t.Helper()
	m, err := verbs.OpenCM(verbs.CMConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// cmPorts are ports with librdmacm warm: it opens each device at its first use,
// and keeps it and a protection domain on it.
func cmPorts(t testing.TB) [2]port {
	t.Helper()
	m, err := verbs.OpenCM(verbs.CMConfig{})
	if err != nil {
		missing(t, "no connection manager: %v", err)
	}
	list, err := verbs.Devices()
	require.NoError(t, err)
	for _, d := range list {
		dev, err := m.Device(d.Name)
		require.NoError(t, err)
		gids, err := dev.GIDs()
		require.NoError(t, err)
		for _, g := range gids {
			if g.GID.Addr().Is4() {
				l, err := m.Listen(g.GID.Addr().String()+":0", verbs.ListenConfig{})
				require.NoError(t, err)
				require.NoError(t, l.Close())
			}
		}
	}
	require.NoError(t, m.Close())
	return ports(t)
}

func cmContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// cmSide is one end of a connection: the queue pair with its memory, made in
// Setup.
func (s *side) setup(t testing.TB, recvs int) func(*verbs.CMSetup) error {
	return func(c *verbs.CMSetup) error {
		s.dev = c.Device
		var err error
		s.pd, err = c.Device.AllocPD()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.pd.Close()) })
		s.cq, err = c.Device.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.cq.Close()) })
		s.mr, err = s.pd.AllocMR(bufSize, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.mr.Close()) })
		s.qp, err = s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, GID: c.GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.qp.Close()) })
		if recvs > 0 {
			s.recv(t, recvs, 64)
		}
		c.QP = s.qp
		return nil
	}
}

func TestCMConnect(t *testing.T) {
	p := cmPorts(t)
	m, ctx := newCM(t), cmContext(t)
	l, err := m.Listen(addrOf(p[1]).String()+":0", verbs.ListenConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	var a, b side
	type accepted struct {
		conn *verbs.CMConn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err != nil {
			got <- accepted{nil, err}
			return
		}
		require.Equal(t, "hello", string(r.PrivateData()[:5]))
		c, err := r.Accept(ctx, verbs.ConnConfig{Setup: b.setup(t, 4), PrivateData: []byte("welcome")})
		got <- accepted{c, err}
	}()
	c, err := m.Dial(ctx, l.Addr().String(), verbs.DialConfig{
		ConnConfig: verbs.ConnConfig{Setup: a.setup(t, 0), PrivateData: []byte("hello")}})
	require.NoError(t, err)
	s := <-got
	require.NoError(t, s.err)
	require.Equal(t, "welcome", string(c.PrivateData()[:7]))
	require.Equal(t, l.Addr(), c.RemoteAddr())
	require.Equal(t, c.LocalAddr(), s.conn.RemoteAddr())

	copy(a.mr.Bytes(), "over the wire")
	batch := a.batch(t, 1)
	batch.Send(1, verbs.Signaled, a.mr.SGE(0, 13))
	a.do(t, batch, 1)
	wc := b.wait(t, 1)
	require.NoError(t, wc[0].Err())
	require.Equal(t, "over the wire", string(b.mr.Bytes()[:13]))

	require.NoError(t, c.Disconnect(ctx))
	<-s.conn.Done()
	require.ErrorIs(t, s.conn.Err(), verbs.ErrDisconnected)
	require.NoError(t, c.Close())
	require.NoError(t, s.conn.Close())
	require.NoError(t, c.Close(), "closing twice")
}
