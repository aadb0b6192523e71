//go:build linux

package rdmacm_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

// Links by the connection manager: what both sides offer, messages, clients that
// come and go, and the end of the server, which all hear.
func TestLinks(t *testing.T) {
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	listener, err := m.Listen(p[1].Addr().String()+":0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	serving, stop := context.WithCancel(ctx)
	memory := make([]byte, 4096)
	copy(memory, "the server's memory")
	cfg := verbs.LinkConfig{Receive: &verbs.ReceiverConfig{Size: 64}, Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
	served, failed := make(chan error, 1), make(chan error, 16)
	go func() {
		served <- m.ServeLinks(serving, listener, cfg, func(ctx context.Context, l *verbs.Link) error {
			if string(l.Data()) != "a client" {
				return fmt.Errorf("the client says %q", l.Data())
			}
			return rig.Echo(ctx, l)
		}, func(_ net.Addr, err error) { failed <- err })
	}()
	at := listener.Addr().String()
	mine := verbs.LinkConfig{Receive: cfg.Receive, Dialer: rig.DialFrom(p[0]),
		Setup: func(*verbs.Link) (verbs.Offer, error) { return verbs.Offer{Data: []byte("a client")}, nil }}

	var clients sync.WaitGroup
	for g := range 3 {
		clients.Go(func() {
			for n := range 2 {
				l, err := m.DialLink(ctx, at, mine)
				if !assert.NoError(t, err) {
					return
				}
				mr, err := l.AllocMR(64, verbs.MRConfig{})
				assert.NoError(t, err)
				r, err := l.Requester()
				assert.NoError(t, err)
				assert.NoError(t, r.Read(ctx, l.Regions()[0].At(0), mr.SGE(0, 19)))
				assert.Equal(t, "the server's memory", string(mr.Bytes()[:19]))
				said := fmt.Sprint("client ", g, ", time ", n)
				assert.NoError(t, r.Send(ctx, mr.SGE(0, copy(mr.Bytes(), said))))
				buf := make([]byte, 64)
				m, err := l.Receiver().Receive(ctx, buf)
				assert.NoError(t, err)
				assert.Equal(t, said, string(buf[:m.Len]))
				assert.NoError(t, l.Close())
			}
		})
	}
	clients.Wait()

	rude := mine
	rude.Setup = nil
	l, err := m.DialLink(ctx, at, rude)
	require.NoError(t, err)
	require.ErrorContains(t, <-failed, "the client says")
	<-l.QP().Done()
	require.NoError(t, l.Close())
	rude.Setup = func(*verbs.Link) (verbs.Offer, error) { return verbs.Offer{Data: make([]byte, 60)}, nil }
	_, err = m.DialLink(ctx, at, rude)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	conn, err := m.Dial(ctx, at, rdmacm.DialConfig{Local: netip.AddrPortFrom(p[0].Addr(), 0)})
	require.NoError(t, err, "who is no link is heard, and refused")
	require.ErrorIs(t, <-failed, verbs.ErrMessage)
	<-conn.Done()
	require.NoError(t, conn.Close())

	l, err = m.DialLink(ctx, at, mine)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	time.AfterFunc(20*time.Millisecond, stop)
	_, err = l.Receiver().Receive(ctx, make([]byte, 64))
	require.ErrorIs(t, err, rdmacm.ErrDisconnected)
	require.NoError(t, <-served)
	require.Empty(t, failed, "clients that go away are no failures")
	_, err = m.DialLink(ctx, at, mine)
	require.Error(t, err)
}
