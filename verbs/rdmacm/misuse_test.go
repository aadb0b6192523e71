//go:build linux

package rdmacm_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/canceltest"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/netpath"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// Calls under a context that has ended already do nothing.
func TestCancelledBefore(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	links, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	canceltest.Methods(t, m, []any{l.Addr().String(), netip.MustParseAddr("239.7.7.9"), links})
	failed := make(chan error, 1)
	go func() {
		_, err := m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{Local: netip.AddrPortFrom(p[0].Addr(), 0)})
		failed <- err
	}()
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = l.Accept(over)
	require.ErrorIs(t, err, context.Canceled)
	r, err := l.Accept(ctx)
	require.NoError(t, err)
	canceltest.Methods(t, r, nil)
	var rejected *rdmacm.RejectedError
	require.ErrorAs(t, <-failed, &rejected)

	a, _, err := rig.Dialed(t, m, rdmacm.DialConfig{}, rdmacm.ConnConfig{})
	require.NoError(t, err)
	canceltest.Methods(t, a, nil)
	require.NoError(t, a.Err())
}

// The loopback interface leads to no RDMA device: Listen says so, before a client fails.
func TestListenOnLoopback(t *testing.T) {
	rig.CMPorts(t)
	m := rig.NewCM(t)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		_, err := m.Listen(at, rdmacm.ListenConfig{})
		require.ErrorIs(t, err, netpath.ErrNotRDMA, at)
		require.ErrorContains(t, err, "loopback")
	}
}
