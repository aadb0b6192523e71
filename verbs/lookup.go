package verbs

import (
	"context"
	"errors"
	"math/bits"
	"net"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/verbs/netpath"
)

// Local is the place where a netdev or an address of this host meets RDMA.
type Local struct {
	Device string
	Port   uint8
	GID    GIDEntry // good until addresses change, as its index is
	Netdev string   // that has the address
	// Lower is the RDMA device's own netdev: Netdev itself, or below it if that
	// is a VLAN, a bond or the like. It is empty if that is in another network
	// namespace.
	Lower     string
	VLAN      int // tag of the packets, or 0
	LinkLayer LinkLayer
	NetdevMTU int // bytes, IP header included
	ActiveMTU MTU // of the port
}

// MTU is the largest MTU that both the port and the netdev carry.
func (l Local) MTU() MTU { return pathMTU(l.LinkLayer, l.ActiveMTU, roceMTU(l.NetdevMTU)) }

// Path is the way to another host, as the kernel's routing has it now.
type Path struct {
	Local
	Src, Dst netip.Addr
	NextHop  netip.Addr // the gateway, or Dst itself if that is on the link
	Loopback bool       // Dst is an address of this host
	RouteMTU int        // bytes, IP header included; 0 if the route has none of its own
	// MTU is the largest that route, netdev and port carry. What lies beyond the
	// next hop may carry less.
	MTU MTU
	// MAC is the next hop's link-layer address: six bytes on Ethernet, twenty
	// with IP over InfiniBand; empty if the link has none.
	MAC       net.HardwareAddr
	Neighbour netpath.NeighbourState
}

// LookupAddr finds the RDMA device, port and GID of an address of this host. It
// fails with [netpath.ErrNoAddress], [netpath.ErrLinkDown], [netpath.ErrNotRDMA] or [ErrNoGID]. The
// device is opened for a moment; package netpath does without. Safe for
// concurrent use, as are all lookups.
func LookupAddr(ctx context.Context, addr netip.Addr) (Local, error) {
	at, err := netpath.LookupAddr(ctx, addr)
	if err != nil {
		return Local{}, ofNetpath(err)
	}
	return localOf("look up", addr.String(), at)
}

// OpenFor opens the device of an address of this host: see [LookupAddr]. It returns what
// was found beside it.
func OpenFor(ctx context.Context, addr netip.Addr, cfg DeviceConfig) (*Device, Local, error) {
	at, err := netpath.LookupAddr(ctx, addr)
	if err != nil {
		return nil, Local{}, ofNetpath(err)
	}
	dev, err := Open(at.Device, cfg)
	if err != nil {
		return nil, Local{}, err
	}
	l, err := localOn(dev, "look up", addr.String(), at)
	if err != nil {
		return nil, Local{}, errors.Join(err, dev.Close())
	}
	return dev, l, nil
}

// LookupNetdev finds the RDMA device and port of a netdev, or of what it is
// stacked on, and the netdev's GID most likely meant (see [GIDQuery]). It fails
// with [netpath.ErrNoNetdev], [netpath.ErrLinkDown], [netpath.ErrNotRDMA] or [ErrNoGID].
func LookupNetdev(ctx context.Context, name string) (Local, error) {
	n, err := netpath.LookupNetdev(ctx, name)
	if err != nil {
		return Local{}, ofNetpath(err)
	}
	return localOf("look up", name, netpath.Local{Netdev: n})
}

// ResolvePath finds the way to an address as the kernel routes it: device,
// source address and GID, next hop and MTU. When the neighbour is unknown, one
// empty UDP datagram to the discard port makes the kernel ask for it, and the
// call waits for the reply, for five seconds at most. It fails with
// [netpath.ErrNoRoute], [netpath.ErrNoNeighbour] and what [LookupAddr] fails with.
func ResolvePath(ctx context.Context, dst netip.Addr) (Path, error) {
	return ResolvePathFrom(ctx, netip.Addr{}, dst)
}

// ResolvePathFrom is [ResolvePath] from a given source address of this host;
// routing rules may depend on it.
func ResolvePathFrom(ctx context.Context, src, dst netip.Addr) (Path, error) {
	p, err := netpath.ResolveFrom(ctx, src, dst)
	if err != nil {
		return Path{}, ofNetpath(err)
	}
	l, err := localOf("resolve the path to", dst.String(), p.Local)
	if err != nil {
		return Path{}, err
	}
	return Path{
		Local: l, Src: p.Src, Dst: p.Dst, NextHop: p.NextHop, Loopback: p.Loopback, RouteMTU: p.RouteMTU,
		MTU: pathMTU(l.LinkLayer, l.ActiveMTU, mtuOf(p.MTU)), MAC: p.MAC, Neighbour: p.Neighbour,
	}, nil
}

// ofNetpath says what netpath says, as this package.
func ofNetpath(err error) error {
	if e, ok := errors.AsType[*netpath.OpError](err); ok {
		return &OpError{Op: e.Op, Object: e.Object, Detail: e.Detail, Err: e.Err}
	}
	return err
}

// localOf adds what only the opened device of a netdev reports, with the GID of
// the address if that is valid.
func localOf(op, object string, at netpath.Local) (Local, error) {
	dev, err := Open(at.Device, DeviceConfig{})
	if err != nil {
		return Local{}, err
	}
	l, err := localOn(dev, op, object, at)
	return l, errors.Join(err, dev.Close())
}

func localOn(dev *Device, op, object string, at netpath.Local) (Local, error) {
	all, err := dev.GIDs()
	if err != nil {
		return Local{}, err
	}
	gid, ok := gidOn(all, at)
	if !ok {
		return Local{}, noGID(op, object+" on "+dev.Name(), all)
	}
	port, err := dev.Port(gid.Port)
	if err != nil {
		return Local{}, err
	}
	if !port.State.carries() {
		return Local{}, opError(op, object, netpath.ErrLinkDown, "port ", port.Num, " of ", dev.Name(), " is ", port.State)
	}
	return Local{
		Device: dev.Name(), Port: gid.Port, GID: gid, Netdev: at.Name, Lower: at.Lower, VLAN: at.VLAN, NetdevMTU: at.MTU,
		LinkLayer: port.LinkLayer, ActiveMTU: port.ActiveMTU,
	}, nil
}

// roceMTU returns the largest RDMA MTU that fits into IP packets of so many bytes,
// or 0 if none does.
func roceMTU(ip int) MTU { return mtuOf(netpath.RoCEMTU(ip)) }

// mtuOf is the MTU of so many bytes: 256, 512 and so on; 0 of 0.
func mtuOf(n int) MTU { return MTU(max(0, bits.Len(uint(n))-bits.Len(128))) }

// pathMTU is the smaller of the port's MTU and what IP carries. On InfiniBand the
// IP MTUs are not RDMA's.
func pathMTU(link LinkLayer, port, ip MTU) MTU {
	if link == LinkInfiniBand {
		return port
	}
	return min(port, ip)
}

// gidOn chooses the GID of a netdev: that of the address, if one is given.
func gidOn(all []GIDEntry, at netpath.Local) (GIDEntry, bool) {
	var fit []GIDEntry
	for _, e := range all {
		if (e.IfIndex == at.Index || at.IPoIB) && at.HasGID(e.GID.Addr()) {
			fit = append(fit, e)
		}
	}
	here := place{known: true, netdevs: []netpath.Netdev{at.Netdev}}
	gid, ok := GIDQuery{Addr: at.Addr, Port: at.Port}.choose(fit, here)
	if !ok && at.Loopback { // which has more addresses than the device has GIDs
		return GIDQuery{Port: at.Port}.choose(fit, here)
	}
	return gid, ok
}

func noGID(op, object string, all []GIDEntry) error {
	if len(all) == 0 {
		return opError(op, object, ErrNoGID, "the device has none at all")
	}
	have := make([]string, len(all))
	for i, e := range all {
		have[i] = e.String()
	}
	return opError(op, object, ErrNoGID, "there are: ", strings.Join(have, ", "))
}
