package verbs

import (
	"context"
	"net"
	"net/netip"
	"time"
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
