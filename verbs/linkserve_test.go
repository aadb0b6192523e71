//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// linkServer serves at the second port's address until stop is called.
func linkServer(t *testing.T, p [2]rig.Port, cfg verbs.LinkConfig, serve func(context.Context, *verbs.Link) error) (address string, failed chan error, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(p[1].Addr(), 0).String())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	failed = make(chan error, 16)
	go func() {
		served <- verbs.ServeLinks(ctx, l, cfg, serve, func(_ net.Addr, err error) { failed <- err })
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { require.NoError(t, stop()) })
	return l.Addr().String(), failed, stop
}

// Clients come, get replies and go, beside connections that talk nonsense and
// clients that fail; when the server ends all of them notice.
func TestServeLinks(t *testing.T) {
	p := rig.NeedAddresses(t, rig.Ports(t))
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	cfg := verbs.LinkConfig{Receive: &verbs.ReceiverConfig{Size: 64}}
	address, failed, stop := linkServer(t, p, cfg, rig.Echo)
	cfg.Dialer = rig.DialFrom(p[0])

	other, err := cfg.Dialer.DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	_, err = other.Write([]byte("GET / HTTP/1.1\r\n\r\n, and more than an address would have"))
	require.NoError(t, err)
	require.ErrorIs(t, <-failed, verbs.ErrMessage)
	require.NoError(t, other.Close())

	var clients sync.WaitGroup
	for g := range 4 {
		clients.Go(func() {
			for n := range 3 {
				l, err := verbs.DialLink(ctx, address, cfg)
				if !assert.NoError(t, err) {
					return
				}
				mr, err := l.AllocMR(64, verbs.MRConfig{})
				assert.NoError(t, err)
				r, err := l.Requester()
				assert.NoError(t, err)
				said := fmt.Sprint("client ", g, ", time ", n)
				assert.NoError(t, r.Send(ctx, mr.SGE(0, copy(mr.Bytes(), said))))
				buf := make([]byte, 64)
				m, err := l.Receiver().Receive(ctx, buf)
				assert.NoError(t, err)
				assert.Equal(t, said, string(buf[:m.Len]))
				assert.NoError(t, l.Close())
				assert.NoError(t, l.Close())
			}
		})
	}
	clients.Wait()

	l, err := verbs.DialLink(ctx, address, cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	time.AfterFunc(20*time.Millisecond, func() { assert.NoError(t, stop()) })
	_, err = l.Receiver().Receive(ctx, make([]byte, 64))
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, l.QP().Err(), io.EOF)
	<-l.QP().Done()
	require.Empty(t, failed, "clients that go away are no failures")
	_, err = verbs.DialLink(ctx, address, cfg)
	require.Error(t, err)
}

// The context of a call ends with its client, and its error is told.
func TestServeLinksTells(t *testing.T) {
	p := rig.NeedAddresses(t, rig.Ports(t))
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	causes := make(chan error, 1)
	no := errors.New("no")
	address, failed, _ := linkServer(t, p, verbs.LinkConfig{}, func(ctx context.Context, l *verbs.Link) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return no
	})
	l, err := verbs.DialLink(ctx, address, verbs.LinkConfig{Dialer: rig.DialFrom(p[0])})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-causes, io.EOF)
	require.ErrorIs(t, <-failed, no)
}
