package verbs

import (
	"context"
	"net/netip"
)

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
