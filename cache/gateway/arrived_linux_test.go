package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Commands that have arrived are carried out, also those that were not read yet: more than fit
// into a buffer wait behind one that takes long. What comes later is not.
func TestShutdownCarriesOutWhatHasArrived(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			slow := &slowStore{local: newLocal(t), begun: make(chan struct{}, 1), proceed: make(chan struct{})}
			cfg := Config{Store: slow, Idle: time.Minute}
			var theirs *tls.Config
			if secure {
				cfg.TLS, theirs = certificate(t, "cache")
			}
			s, addr := newServer(t, cfg)
			p := dial(t, "tcp", addr)
			raw := p.nc
			if secure {
				p.nc = tls.Client(raw, theirs)
			}
			require.Equal(t, "END\r\n", p.ask("get a\r\n"))
			slow.slow.Store(true)
			const sets = 2000 // 60 KiB, of which the gateway reads 16 at a time
			var all strings.Builder
			for i := range sets {
				fmt.Fprintf(&all, "set key-%04d 0 0 5\r\nvalue\r\n", i)
			}
			_, err := p.nc.Write([]byte(all.String()))
			require.NoError(t, err)
			<-slow.begun
			slow.slow.Store(false)
			require.Eventually(t, func() bool { return unsent(t, raw) == 0 }, stuck, time.Millisecond)
			shut := make(chan error, 1)
			go func() { shut <- s.Shutdown(t.Context()) }()
			require.Eventually(t, s.draining.Load, stuck, time.Millisecond)
			close(slow.proceed)
			require.Equal(t, strings.Repeat("STORED\r\n", sets), p.rest(""))
			require.NoError(t, <-shut)
		})
	}
}

// A client that does not stop does not keep it.
func TestShutdownBesideAClientThatGoesOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), stuck)
	defer cancel()
	s, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	require.Equal(t, "END\r\n", p.ask("get a\r\n"))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := p.nc.Write([]byte("set a 0 0 1 noreply\r\na\r\n")); err != nil {
				return
			}
		}
	}()
	require.NoError(t, s.Shutdown(ctx))
	<-over
}

// unsent is how many bytes the peer's kernel has not acknowledged.
func unsent(t testing.TB, nc net.Conn) (n int) {
	raw, err := nc.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }))
	require.NoError(t, err)
	return n
}
