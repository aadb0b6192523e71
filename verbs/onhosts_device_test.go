//go:build linux

package verbs_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Ports of the programs of TestOnHostsPeerIsPoweredOff, and the environment variable that
// tells the one that dies what it is.
const (
	survivingPort = 7491
	dyingPort     = 7492
	dies          = "VERBS_DIES"
)

// Both ends of a link, at a host that is alive, notice that the other host has no power any
// more, and end; the server serves others.
func TestOnHostsPeerIsPoweredOff(t *testing.T) {
	lab.RequireHosts(t, 2)
	cfg := verbs.LinkConfig{
		QP:    verbs.QPConfig{KeepAlive: 500 * time.Millisecond},
		Setup: verbs.OfferMemory(make([]byte, 64), verbs.RemoteRead),
	}
	serve := func(ctx context.Context, host int, port uint16, clients chan<- *verbs.Link, failed func(net.Addr, error)) error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(lab.Addrs()[host], port).String())
		if err != nil {
			return err
		}
		return verbs.ServeLinks(ctx, l, cfg, func(ctx context.Context, l *verbs.Link) error {
			clients <- l
			<-ctx.Done()
			return context.Cause(ctx)
		}, failed)
	}
	dial := func(ctx context.Context, host int, port uint16) (l *verbs.Link) {
		require.Eventually(t, func() bool {
			var err error
			l, err = verbs.DialLink(ctx, netip.AddrPortFrom(lab.Addrs()[host], port).String(), cfg)
			return err == nil
		}, time.Minute, 100*time.Millisecond)
		return l
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if os.Getenv(dies) != "" {
		dial(ctx, 0, survivingPort)
		require.NoError(t, serve(ctx, lab.Self(), dyingPort, make(chan *verbs.Link, 8), nil))
		return
	}
	if _, err := lab.Host(1).Exec(ctx, "true"); err != nil { // left dead by another test
		require.NoError(t, lab.Host(1).Start(ctx))
	}
	lab.NoLeftovers(t)
	self, err := os.Executable()
	require.NoError(t, err)
	clients, failed, served := make(chan *verbs.Link, 8), make(chan error, 8), make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		served <- serve(serving, 0, survivingPort, clients, func(_ net.Addr, err error) { failed <- err })
	}()
	for round := range 2 {
		go lab.Host(1).Exec(ctx, "env", dies+"=1", self, "-test.run=^TestOnHostsPeerIsPoweredOff$")
		select {
		case <-clients:
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "round %d", round)
		}
		l := dial(ctx, 1, dyingPort)
		mr, err := l.AllocMR(64, verbs.MRConfig{})
		require.NoError(t, err)
		r, err := l.Requester()
		require.NoError(t, err)
		require.NoError(t, r.Read(ctx, l.Regions()[0].At(0), mr.SGE(0, 64)))

		require.NoError(t, lab.Host(1).Kill(ctx))
		select {
		case err := <-failed:
			require.Error(t, err)
			t.Log("the server: ", err)
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "the server does not notice")
		}
		select {
		case <-l.QP().Done():
			require.ErrorIs(t, l.QP().Err(), verbs.ErrUnreachable)
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), "the client does not notice")
		}
		require.Error(t, r.Read(ctx, l.Regions()[0].At(0), mr.SGE(0, 64)))
		require.NoError(t, l.Close())
		require.NoError(t, lab.Host(1).Start(ctx))
	}
	stop()
	require.NoError(t, <-served)
}
