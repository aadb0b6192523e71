package netpath

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func routeMessage(t testing.TB, kind uint8, f func(*rtnetlink.RouteAttributes)) []byte {
	t.Helper()
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET, Type: kind}
	f(&m.Attributes)
	b, err := m.MarshalBinary()
	require.NoError(t, err)
	return b
}

// viaAttr is a gateway of the other family.
func viaAttr(t testing.TB, a netip.Addr) []byte {
	t.Helper()
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.RTA_VIA, Data: append([]byte{unix.AF_INET6, 0}, a.AsSlice()...)}})
	require.NoError(t, err)
	return b
}

func TestRouteOf(t *testing.T) {
	r, err := routeOf(routeMessage(t, unix.RTN_UNICAST, func(a *rtnetlink.RouteAttributes) {
		a.OutIface, a.Src, a.Gateway = 3, []byte{10, 0, 0, 1}, []byte{10, 0, 0, 254}
		a.Metrics = &rtnetlink.RouteMetrics{MTU: 1400}
	}))
	require.NoError(t, err)
	require.Equal(t, route{ifIndex: 3, src: netip.MustParseAddr("10.0.0.1"), gateway: netip.MustParseAddr("10.0.0.254"), mtu: 1400}, r)
	r, err = routeOf(routeMessage(t, unix.RTN_LOCAL, func(a *rtnetlink.RouteAttributes) { a.OutIface = 1 }))
	require.NoError(t, err)
	require.Equal(t, route{ifIndex: 1, local: true}, r)
	router := netip.MustParseAddr("fe80::9")
	r, err = routeOf(append(routeMessage(t, unix.RTN_UNICAST, func(a *rtnetlink.RouteAttributes) { a.OutIface = 2 }), viaAttr(t, router)...))
	require.NoError(t, err)
	require.Equal(t, route{ifIndex: 2, gateway: router}, r)
	_, err = routeOf(nil)
	require.Error(t, err)
	for _, kind := range []uint8{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT, unix.RTN_THROW, unix.RTN_BROADCAST, unix.RTN_MULTICAST} {
		_, err = routeOf(routeMessage(t, kind, func(*rtnetlink.RouteAttributes) {}))
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
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET}
	m.Attributes.Dst = []byte{10, 0, 0, 2}
	plain, err := routeRequest(m, netip.Addr{})
	require.NoError(t, err)
	from, err := routeRequest(m, netip.MustParseAddr("10.0.0.1"))
	require.NoError(t, err)
	require.Equal(t, plain, from[:len(plain)])
	require.Equal(t, []byte{8, 0, unix.RTA_SRC, 0, 10, 0, 0, 1}, from[len(plain):])
}

// FuzzRoute: whatever the kernel replies, there is a route or an error.
func FuzzRoute(f *testing.F) {
	b := routeMessage(f, unix.RTN_UNICAST, func(a *rtnetlink.RouteAttributes) {
		a.OutIface, a.Src, a.Gateway = 3, []byte{10, 0, 0, 1}, []byte{10, 0, 0, 254}
	})
	f.Add(b)
	f.Add(append(b[:unix.SizeofRtMsg:unix.SizeofRtMsg], viaAttr(f, netip.MustParseAddr("fe80::9"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := routeOf(b)
		if err == nil && (r.gateway.Is4In6() || r.src.Is4In6()) {
			t.Fatalf("not unmapped: %+v", r)
		}
	})
}
