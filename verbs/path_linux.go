package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// neighbourWait bounds the wait for an answer; the kernel itself gives up after
// three seconds, unless it was told otherwise.
const neighbourWait = 5 * time.Second

func resolvePath(ctx context.Context, src, dst netip.Addr) (Path, error) {
	const op = "resolve the path to"
	h, err := dialHostNet(ctx)
	if err != nil {
		return Path{}, opError(op, dst.String(), err)
	}
	defer h.close()
	p := Path{Src: src.Unmap(), Dst: dst.Unmap()}
	r, err := h.route(op, p.Src, p.Dst)
	if err != nil {
		return Path{}, err
	}
	// A local route leads to lo, which has no RDMA: the address's own netdev has.
	own := p.Dst
	if !p.Src.IsValid() {
		p.Src = r.src
	}
	n, ok := h.byIndex(r.ifIndex)
	if p.Loopback = r.local; p.Loopback {
		if src.IsValid() {
			own = p.Src
		}
		n, err = h.withAddr(op, own)
		if err != nil {
			return Path{}, err
		}
	} else if own = p.Src; !ok {
		return Path{}, opError(op, dst.String(), ErrNoRoute, "it leads to netdev number ", r.ifIndex, ", which is not there")
	}
	if p.Local, err = h.local(op, dst.String(), n, own); err != nil {
		return Path{}, err
	}
	p.RouteMTU = r.mtu
	p.MTU = pathMTU(p.LinkLayer, p.ActiveMTU, p.NetdevMTU, r.mtu)
	if p.NextHop = r.gateway; !p.NextHop.IsValid() {
		p.NextHop = p.Dst
	}
	switch {
	case p.Loopback:
		if to, ok := h.byAddr(p.Dst); ok {
			n = to
		}
		if n.loopback {
			return Path{}, opError(op, dst.String(), ErrNotRDMA, n.name)
		}
		p.MAC, p.Neighbour = n.mac, NeighbourPermanent
	case n.noARP:
		p.Neighbour = NeighbourNoARP
	default:
		p.MAC, p.Neighbour, err = h.neighbour(ctx, n, p.Src, p.Dst, p.NextHop)
		if err != nil {
			return Path{}, opError(op, dst.String(), err, p.NextHop, " on ", n.name, " is ", p.Neighbour)
		}
	}
	return p, nil
}

// route is what the kernel answers for one destination.
type route struct {
	ifIndex int
	src     netip.Addr
	gateway netip.Addr // invalid if the destination is on the link
	mtu     int        // 0 if it is the netdev's
	local   bool
}

// routeRequest asks for the route of one packet. The module has no field for
// the source address of a packet, only for the one that a route prefers.
type routeRequest struct {
	*rtnetlink.RouteMessage
	src netip.Addr
}

func (r routeRequest) MarshalBinary() ([]byte, error) {
	b, err := r.RouteMessage.MarshalBinary()
	if err != nil || !r.src.IsValid() {
		return b, err
	}
	attr, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.RTA_SRC, Data: r.src.AsSlice()}})
	return append(b, attr...), err
}

func (h *hostNet) route(op string, src, dst netip.Addr) (route, error) {
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
		m.Attributes.OutIface = uint32(n.index)
	}
	if src.IsValid() {
		if _, err := h.withAddr("use the source address", src); err != nil {
			return route{}, err
		}
		m.SrcLength = uint8(src.BitLen())
	}
	msgs, err := h.conn.Execute(routeRequest{m, src}, unix.RTM_GETROUTE, netlink.Request)
	if err != nil {
		return route{}, opError(op, dst.String(), noRoute(err))
	}
	for _, m := range msgs {
		if m, ok := m.(*rtnetlink.RouteMessage); ok {
			r, err := routeOf(m)
			return r, opError(op, dst.String(), err)
		}
	}
	return route{}, opError(op, dst.String(), ErrNoRoute, "the kernel answered nothing")
}

// noRoute classes the refusals of a route lookup: unreachable, or forbidden by
// a route of type blackhole, prohibit or unreachable.
func noRoute(err error) error {
	for _, e := range []syscall.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, e) {
			return class(ErrNoRoute, err)
		}
	}
	return err
}

func routeOf(m *rtnetlink.RouteMessage) (route, error) {
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
	return r, nil
}

// neighbour answers the next hop's link-layer address; it makes the kernel ask
// for it if that does not know it.
func (h *hostNet) neighbour(ctx context.Context, n netdev, src, dst, hop netip.Addr) (net.HardwareAddr, NeighbourState, error) {
	mac, state, err := h.known(n, hop)
	if err != nil || state.known() {
		return mac, state, err
	}
	if err := provoke(ctx, n, src, dst); err != nil {
		return nil, state, err
	}
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
	defer cancel()
	for {
		mac, state, err = h.known(n, hop)
		switch {
		case err != nil || state.known():
			return mac, state, err
		case state == NeighbourFailed:
			return nil, state, ErrNoNeighbour
		}
		select {
		case <-ctx.Done():
			return nil, state, class(ErrNoNeighbour, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// provoke sends an empty datagram to the discard port, so that the kernel asks
// for the neighbour. Nobody needs to receive it.
func provoke(ctx context.Context, n netdev, src, dst netip.Addr) error {
	if dst.IsLinkLocalUnicast() && dst.Is6() {
		src, dst = src.WithZone(n.name), dst.WithZone(n.name)
	}
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
	c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(dst, 9).String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write(nil)
	return err
}

// known is what the kernel knows of a neighbour now.
func (h *hostNet) known(n netdev, hop netip.Addr) (net.HardwareAddr, NeighbourState, error) {
	list, err := h.conn.Neigh.List()
	if err != nil {
		return nil, 0, err
	}
	for _, m := range list {
		if int(m.Index) != n.index || m.Attributes == nil {
			continue
		}
		if a, ok := netip.AddrFromSlice(m.Attributes.Address); ok && a.Unmap() == hop.WithZone("") {
			return m.Attributes.LLAddress, NeighbourState(m.State), nil
		}
	}
	return nil, NeighbourNone, nil
}
