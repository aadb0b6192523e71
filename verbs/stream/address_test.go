//go:build linux

package stream_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// A name with several addresses is reached at whichever of them responds, and an
// error names all.
func TestDialTriesEveryAddress(t *testing.T) {
	lab.RequireTopology(t, "wire")
	p := rig.CMPorts(t)
	m := rig.NewCM(t)
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	nobody := netip.MustParseAddr("10.77.0.99")
	resolveTo(t, nobody, p[1].Addr())
	l, err := stream.Listen(m, p[1].Addr().String()+":0", stream.Config{})
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	var cfg stream.Config
	cfg.Dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	s, err := stream.Dial(soon(), m, "peer.test:"+port, cfg)
	require.NoError(t, err)
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.Close(), c.Close(), l.Close()))

	_, err = m.Dial(soon(), "peer.test:"+port, rdmacm.DialConfig{Local: cfg.Dial.Local})
	require.ErrorIs(t, err, verbs.ErrUnreachable, "of the first")
	var rejected *rdmacm.RejectedError
	require.ErrorAs(t, err, &rejected, "of the second")
}

// resolveTo makes every name have these addresses, until the test ends.
func resolveTo(t *testing.T, addrs ...netip.Addr) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	old := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = old; server.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer, err := dnsAnswer(buf[:n], addrs); err == nil {
				server.WriteTo(answer, from)
			}
		}
	}()
}

func dnsAnswer(query []byte, addrs []netip.Addr) ([]byte, error) {
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil || len(q.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not one question"))
	}
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	for _, addr := range addrs {
		if q.Questions[0].Type == dnsmessage.TypeA && addr.Is4() {
			a.Answers = append(a.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: uint32(time.Minute.Seconds())},
				Body:   &dnsmessage.AResource{A: addr.As4()}})
		}
	}
	return a.Pack()
}
