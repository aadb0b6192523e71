//go:build linux

package integrations

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// packets returns a PacketConn on the device of an end.
func packets(t testing.TB, end lab.Endpoint) *PacketConn {
	t.Helper()
	dev, local, err := verbs.OpenFor(t.Context(), end.Addr, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	ep, err := srd.Open(srd.Config{PD: pd, GID: local.GID})
	require.NoError(t, err)
	c, err := NewPacketConn(ep)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// connect returns both ends of a QUIC connection; the first one has dialed.
func connect(t testing.TB, near, far net.PacketConn) (client, server *quic.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	certificates := httptest.NewTLSServer(nil)
	defer certificates.Close()
	trusted := certificates.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs

	to, from := &quic.Transport{Conn: far}, &quic.Transport{Conn: near}
	t.Cleanup(func() { to.Close(); from.Close() })
	l, err := to.Listen(&tls.Config{Certificates: certificates.TLS.Certificates, NextProtos: []string{"echo"}}, nil)
	require.NoError(t, err)
	client, err = from.Dial(ctx, far.LocalAddr(), &tls.Config{RootCAs: trusted, ServerName: "example.com", NextProtos: []string{"echo"}}, nil)
	require.NoError(t, err)
	server, err = l.Accept(ctx)
	require.NoError(t, err)
	return client, server
}

// echo echoes each stream of a connection, until the connection is closed.
func echo(c *quic.Conn) {
	for {
		s, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() { io.Copy(s, s); s.Close() }()
	}
}

// Streams are whole on a good wire, and in the lab on one that loses packets.
func TestQUIC(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	near, far := packets(t, ends[0]), packets(t, ends[1])
	client, server := connect(t, near, far)
	require.Equal(t, near.LocalAddr(), server.RemoteAddr())
	go echo(server)
	streams := func() {
		t.Helper()
		var all errgroup.Group
		for i := range 4 {
			all.Go(func() error {
				s, err := client.OpenStream()
				if err != nil {
					return err
				}
				sent := bytes.Repeat([]byte{byte(i)}, 100_000)
				all.Go(func() error {
					if _, err := s.Write(sent); err != nil {
						return err
					}
					return s.Close()
				})
				got, err := io.ReadAll(s)
				if err == nil && !bytes.Equal(got, sent) {
					t.Errorf("%d bytes came back of %d", len(got), len(sent))
				}
				return err
			})
		}
		require.NoError(t, all.Wait())
	}
	streams()
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Loss: 0.02, Duplicate: 0.05})
		streams()
	}
	require.NoError(t, client.CloseWithError(0, ""))
}

// A deadline ends a read that waits, another one in its place does not, and closing does.
func TestPacketConnDeadline(t *testing.T) {
	ends := lab.Require(t, 2)
	c, peer := packets(t, ends[0]), packets(t, ends[1])
	read := func() chan error {
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.ReadFrom(make([]byte, 10))
			ended <- err
		}()
		return ended
	}
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
	require.ErrorIs(t, <-read(), os.ErrDeadlineExceeded)
	require.ErrorIs(t, <-read(), os.ErrDeadlineExceeded, "a deadline stays")

	require.NoError(t, c.SetReadDeadline(time.Time{}))
	ended := read()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	_, err := peer.WriteTo([]byte("datagram"), c.LocalAddr())
	require.NoError(t, err)
	require.NoError(t, <-ended)

	ended = read()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

// Datagrams to a peer that is gone hold up a writer for a moment each, and never for good.
func TestPacketConnSilentPeer(t *testing.T) {
	ends := lab.Require(t, 2)
	c, gone := packets(t, ends[0]), packets(t, ends[1])
	require.NoError(t, gone.Close())
	for range datagrams + 5 {
		start := time.Now()
		n, err := c.WriteTo(make([]byte, 1200), gone.LocalAddr())
		require.NoError(t, err)
		require.Equal(t, 1200, n)
		require.Less(t, time.Since(start), time.Second)
	}
	_, err := c.WriteTo([]byte("x"), &net.UDPAddr{})
	require.ErrorContains(t, err, "want an Addr, not *net.UDPAddr")
}
