//go:build linux

package rdmacm_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// A server notices that its client cannot be reached any more though neither sends
// anything, and then closes the link without waiting for the client.
func TestKeepAliveOfLinks(t *testing.T) {
	lab.RequireTopology(t, "wire")
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	listener, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	begun, gone, served := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	cfg := verbs.LinkConfig{QP: verbs.QPConfig{KeepAlive: 200 * time.Millisecond}}
	go func() {
		served <- m.ServeLinks(serving, listener, cfg, func(ctx context.Context, l *verbs.Link) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}, func(_ net.Addr, err error) { gone <- err })
	}()
	mine := verbs.LinkConfig{Dialer: rig.DialFrom(p[0]), QP: verbs.QPConfig{KeepAlive: -1}}
	l, err := m.DialLink(ctx, listener.Addr().String(), mine)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	<-begun
	select {
	case err := <-gone:
		require.NoError(t, err, "while the client is there")
	case <-time.After(time.Second):
	}
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	require.ErrorIs(t, <-gone, verbs.ErrUnreachable)
	stop()
	require.NoError(t, <-served)
	require.NoError(t, l.QP().Err(), "the client has no keep-alive")
}
