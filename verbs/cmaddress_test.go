//go:build linux

package verbs_test

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
)

// A name with several addresses is reached at whichever of them answers, and an
// error tells of all.
func TestCMDialTriesEveryAddress(t *testing.T) {
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
	l, err := verbs.StreamListen(m, p[1].Addr().String()+":0", verbs.StreamConfig{})
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	var cfg verbs.StreamConfig
	cfg.Dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	s, err := verbs.StreamDial(soon(), m, "peer.test:"+port, cfg)
	require.NoError(t, err)
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, errors.Join(s.Close(), c.Close(), l.Close()))

	_, err = m.Dial(soon(), "peer.test:"+port, verbs.DialConfig{Local: cfg.Dial.Local})
	require.ErrorIs(t, err, verbs.ErrUnreachable, "of the first")
	var rejected *verbs.RejectedError
	require.ErrorAs(t, err, &rejected, "of the second")
}

// An empty host is every address of the host, of both families.
func TestCMListensOnBothFamilies(t *testing.T) {
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), rig.Context(t)
	dev, err := m.Device(p[1].Name)
	require.NoError(t, err)
	gids, err := dev.GIDs()
	require.NoError(t, err)
	tried := map[bool]bool{}
	for _, g := range gids {
		at := g.GID.Addr()
		if at.IsLinkLocalUnicast() {
			ifi, err := net.InterfaceByIndex(g.IfIndex)
			require.NoError(t, err)
			at = at.WithZone(ifi.Name)
		}
		l, err := m.Listen(":0", verbs.ListenConfig{})
		require.NoError(t, err)
		require.NotZero(t, l.Addr().Port())
		done := make(chan error, 1)
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				err = r.Reject([]byte("seen"))
			}
			done <- err
		}()
		_, err = m.Dial(ctx, netip.AddrPortFrom(at, l.Addr().Port()).String(), verbs.DialConfig{Local: netip.AddrPortFrom(at, 0)})
		var rejected *verbs.RejectedError
		require.ErrorAs(t, err, &rejected, "%v", at)
		require.Equal(t, "seen", string(rejected.PrivateData[:4]), "%v", at)
		require.NoError(t, <-done)
		require.NoError(t, l.Close())
		tried[at.Is4()] = true
	}
	require.Equal(t, map[bool]bool{true: true, false: true}, tried)
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
