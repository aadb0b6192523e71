package netpath

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/operr"
)

// route is the kernel's reply for one destination.
type route struct {
	ifIndex int
	src     netip.Addr
	gateway netip.Addr // invalid if the destination is on the link
	mtu     int        // 0 if it is the netdev's
	local   bool
}

// askRoute asks for the route of one packet. rtnetlink has no field for the
// source address of a packet, only for the one that a route prefers.
func askRoute(m *rtnetlink.RouteMessage, src netip.Addr) ([]netlink.Message, error) {
	b, err := routeRequest(m, src)
	if err != nil {
		return nil, err
	}
	return rtnetlinkAsk(unix.RTM_GETROUTE, 0, b)
}

// rtnetlinkAsk sends a request for one thing, or with flag [netlink.Dump] for all.
func rtnetlinkAsk(kind netlink.HeaderType, flag netlink.HeaderFlags, b []byte) ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Execute(netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flag}, Data: b})
}

func routeRequest(m *rtnetlink.RouteMessage, src netip.Addr) ([]byte, error) {
	b, err := m.MarshalBinary()
	if err != nil || !src.IsValid() {
		return b, err
	}
	attr, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.RTA_SRC, Data: src.AsSlice()}})
	return append(b, attr...), err
}

func (h *host) route(op string, src, dst netip.Addr) (route, error) {
	if !dst.IsValid() || dst.IsUnspecified() || dst.IsMulticast() {
		return route{}, opError(op, dst.String(), ErrNoRoute, "not the address of a host")
	}
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET, DstLength: uint8(dst.BitLen())}
	if dst.Is6() {
		m.Family = unix.AF_INET6
	}
	m.Attributes.Dst = dst.AsSlice()
	if dst.Zone() != "" {
		n, ok := h.byName(dst.Zone())
		if !ok {
			return route{}, opError(op, dst.String(), ErrNoNetdev, dst.Zone())
		}
		m.Attributes.OutIface = uint32(n.Index)
	}
	if src.IsValid() {
		if _, err := h.withAddr("use the source address", src); err != nil {
			return route{}, err
		}
		m.SrcLength = uint8(src.BitLen())
	}
	msgs, err := askRoute(m, src)
	if err != nil {
		return route{}, opError(op, dst.String(), noRoute(err))
	}
	if len(msgs) == 0 {
		return route{}, opError(op, dst.String(), ErrNoRoute, "the kernel answered nothing")
	}
	r, err := routeOf(msgs[0].Data)
	return r, opError(op, dst.String(), err)
}

// noRoute classes the refusals of a route lookup: unreachable, or forbidden by
// a route of type blackhole, prohibit or unreachable.
func noRoute(err error) error {
	for _, e := range []syscall.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, e) {
			return operr.Class(ErrNoRoute, err)
		}
	}
	return err
}

func routeOf(b []byte) (route, error) {
	var m rtnetlink.RouteMessage
	if err := m.UnmarshalBinary(b); err != nil {
		return route{}, err
	}
	a := m.Attributes
	r := route{ifIndex: int(a.OutIface), local: m.Type == unix.RTN_LOCAL}
	switch m.Type {
	case unix.RTN_UNICAST, unix.RTN_LOCAL:
	default:
		return r, fmt.Errorf("%w: it is of type %d", ErrNoRoute, m.Type)
	}
	if src, ok := netip.AddrFromSlice(a.Src); ok {
		r.src = src.Unmap()
	}
	if gw, ok := netip.AddrFromSlice(a.Gateway); ok {
		r.gateway = gw.Unmap()
	}
	if a.Metrics != nil {
		r.mtu = int(a.Metrics.MTU)
	}
	if r.gateway.IsValid() || len(b) <= unix.SizeofRtMsg {
		return r, nil
	}
	// A gateway of the other family (IPv4 by way of IPv6 routers) has an
	// attribute that rtnetlink does not know: two bytes of family, then the
	// address.
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofRtMsg:])
	if err != nil {
		return route{}, err
	}
	for ad.Next() {
		if v := ad.Bytes(); ad.Type() == unix.RTA_VIA && len(v) > 2 {
			if gw, ok := netip.AddrFromSlice(v[2:]); ok {
				r.gateway = gw.Unmap()
			}
		}
	}
	return r, ad.Err()
}
