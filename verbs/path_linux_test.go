package verbs

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func routeMessage(kind uint8, f func(*rtnetlink.RouteAttributes)) *rtnetlink.RouteMessage {
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET, Type: kind}
	f(&m.Attributes)
	return m
}

func TestRouteOf(t *testing.T) {
	r, err := routeOf(routeMessage(unix.RTN_UNICAST, func(a *rtnetlink.RouteAttributes) {
		a.OutIface, a.Src, a.Gateway = 3, []byte{10, 0, 0, 1}, []byte{10, 0, 0, 254}
		a.Metrics = &rtnetlink.RouteMetrics{MTU: 1400}
	}))
	require.NoError(t, err)
	require.Equal(t, route{ifIndex: 3, src: netip.MustParseAddr("10.0.0.1"), gateway: netip.MustParseAddr("10.0.0.254"), mtu: 1400}, r)
	r, err = routeOf(routeMessage(unix.RTN_LOCAL, func(a *rtnetlink.RouteAttributes) { a.OutIface = 1 }))
	require.NoError(t, err)
	require.Equal(t, route{ifIndex: 1, local: true}, r)
	for _, kind := range []uint8{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW, unix.RTN_BROADCAST, unix.RTN_MULTICAST} {
		_, err = routeOf(routeMessage(kind, func(*rtnetlink.RouteAttributes) {}))
		require.ErrorIs(t, err, ErrNoRoute)
	}
}

func TestNoRoute(t *testing.T) {
	for _, e := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		require.ErrorIs(t, noRoute(e), ErrNoRoute)
		require.ErrorIs(t, noRoute(e), e)
	}
	other := errors.New("other")
	require.Equal(t, other, noRoute(other))
	require.NotErrorIs(t, noRoute(unix.ENOBUFS), ErrNoRoute)
}

func TestRouteRequest(t *testing.T) {
	m := routeMessage(0, func(a *rtnetlink.RouteAttributes) { a.Dst = []byte{10, 0, 0, 2} })
	plain, err := routeRequest{m, netip.Addr{}}.MarshalBinary()
	require.NoError(t, err)
	from, err := routeRequest{m, netip.MustParseAddr("10.0.0.1")}.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, plain, from[:len(plain)])
	require.Equal(t, []byte{8, 0, unix.RTA_SRC, 0, 10, 0, 0, 1}, from[len(plain):])
}

// FuzzRoute: whatever the kernel answers, there is a route or an error.
func FuzzRoute(f *testing.F) {
	b, err := routeMessage(unix.RTN_UNICAST, func(a *rtnetlink.RouteAttributes) {
		a.OutIface, a.Src, a.Gateway = 3, []byte{10, 0, 0, 1}, []byte{10, 0, 0, 254}
	}).MarshalBinary()
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m rtnetlink.RouteMessage
		if m.UnmarshalBinary(b) != nil {
			return
		}
		r, err := routeOf(&m)
		if err != nil && !errors.Is(err, ErrNoRoute) {
			t.Fatal(err)
		}
		if r.gateway.Is4In6() || r.src.Is4In6() {
			t.Fatalf("not unmapped: %+v", r)
		}
	})
}
