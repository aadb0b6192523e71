package netpath

import (
	"cmp"
	"context"
	"net/netip"
)

func resolve(ctx context.Context, op string, src, dst netip.Addr) (Path, error) {
	if err := cmp.Or(zoned(op, dst, ErrNoRoute), zoned("use the source address", src, ErrNoAddress)); err != nil {
		return Path{}, err
	}
	h, err := dialHost(ctx)
	if err != nil {
		return Path{}, opError(op, dst.String(), err)
	}
	defer h.close()
	p := Path{Src: src.Unmap(), Dst: dst.Unmap()}
	r, err := h.route(op, p.Src, p.Dst)
	if err != nil {
		return Path{}, err
	}
	if !p.Src.IsValid() {
		p.Src = r.src
	}
	p.Loopback, p.RouteMTU = r.local, r.mtu
	if p.NextHop = r.gateway; !p.NextHop.IsValid() {
		p.NextHop = p.Dst
	}
	n, ok := h.byIndex(r.ifIndex)
	own := p.Src
	switch {
	case p.Loopback:
		// A local route leads to lo, which has no RDMA unless that is simulated: the
		// address's own netdev has.
		if !src.IsValid() {
			own = p.Dst
		}
		if n, err = h.withAddr(op, own); err != nil {
			return Path{}, err
		}
	case !ok:
		return Path{}, opError(op, dst.String(), ErrNoRoute, "it leads to netdev number ", r.ifIndex, ", which is not there")
	}
	if !p.Loopback {
		if err := h.leaves(op, n, p.Src, p.Dst); err != nil {
			return Path{}, err
		}
	}
	dev, err := h.rdmaOf(ctx, op, dst.String(), n, own)
	if err != nil {
		return Path{}, err
	}
	p.Local = Local{dev, own}
	p.MTU = pathMTU(dev, r.mtu)
	if err := h.nextHop(ctx, op, n, &p); err != nil {
		return Path{}, err
	}
	return p, nil
}

// nextHop fills in how the next hop is reached from the netdev.
func (h *host) nextHop(ctx context.Context, op string, n iface, p *Path) (err error) {
	switch {
	case p.Loopback:
		if to, ok := h.byAddr(p.Dst); ok {
			n = to
		}
		if n.Loopback && !p.Local.Loopback {
			return opError(op, p.Dst.String(), ErrNotRDMA, n.Name)
		}
		p.MAC, p.Neighbour = n.MAC, NeighbourPermanent
	case n.noARP:
		p.Neighbour = NeighbourNoARP
	default:
		p.MAC, p.Neighbour, err = h.neighbour(ctx, n, p.Src, p.Dst, p.NextHop)
		if err != nil {
			return opError(op, p.Dst.String(), err, p.NextHop, " on ", n.Name, " is ", p.Neighbour)
		}
	}
	return nil
}
