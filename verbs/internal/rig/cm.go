//go:build linux

package rig

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// NewCM opens a connection manager that closes with the test.
func NewCM(t testing.TB) *rdmacm.CM {
	t.Helper()
	m, err := rdmacm.Open(rdmacm.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// CMPorts are ports with librdmacm warm: it opens each device at its first use,
// and keeps it and a protection domain on it.
func CMPorts(t testing.TB) [2]Port {
	t.Helper()
	m, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		Missing(t, "no connection manager: %v", err)
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
				l, err := m.Listen(g.GID.Addr().String()+":0", rdmacm.ListenConfig{})
				require.NoError(t, err)
				require.NoError(t, l.Close())
			}
		}
	}
	require.NoError(t, m.Close())
	return NeedAddresses(t, Ports(t))
}

// Setup makes one end of a connection: the queue pair with its memory, and
// receives of 64 bytes.
func (s *Side) Setup(t testing.TB, recvs int) func(*rdmacm.Setup) error {
	return s.SetupSize(t, recvs, 64)
}

// SetupSize is Setup with receives of another size.
func (s *Side) SetupSize(t testing.TB, recvs, size int) func(*rdmacm.Setup) error {
	return func(c *rdmacm.Setup) error {
		s.Dev = c.Device
		var err error
		s.PD, err = c.Device.AllocPD()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.PD.Close()) })
		s.CQ, err = c.Device.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.CQ.Close()) })
		s.MR, err = s.PD.AllocMR(BufSize, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.MR.Close()) })
		s.QP, err = s.PD.CreateQP(verbs.QPConfig{SendCQ: s.CQ, GID: c.GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.QP.Close()) })
		if recvs > 0 {
			s.Recv(t, recvs, size)
		}
		c.QP = s.QP
		return nil
	}
}

// Dialed connects port 0 to port 1, over the wire.
func Dialed(t testing.TB, m *rdmacm.CM, dial rdmacm.DialConfig, accept rdmacm.ConnConfig) (a, b *rdmacm.Conn, err error) {
	t.Helper()
	p, ctx := Ports(t), Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			b, err = r.Accept(ctx, accept)
		}
		done <- err
	}()
	dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	a, err = m.Dial(ctx, l.Addr().String(), dial)
	if err != nil {
		l.Close()
	}
	err = errors.Join(err, <-done)
	for _, c := range []*rdmacm.Conn{a, b} {
		if c != nil {
			t.Cleanup(func() { require.NoError(t, c.Close()) })
		}
	}
	return a, b, err
}

// UDSetup makes a UD queue pair with receives, once.
func (s *Side) UDSetup(t testing.TB, recvs int) func(*rdmacm.Setup) error {
	return func(c *rdmacm.Setup) error {
		if s.QP == nil {
			err := s.Setup(t, 0)(c)
			require.NoError(t, err)
			require.NoError(t, s.QP.Close())
			s.QP, err = s.PD.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: s.CQ, GID: c.GID})
			require.NoError(t, err)
			qp := s.QP
			t.Cleanup(func() { require.NoError(t, qp.Close()) })
			if recvs > 0 {
				s.Recv(t, recvs, 256)
			}
		}
		c.QP = s.QP
		return nil
	}
}
