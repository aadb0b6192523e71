package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Errors of looking up addresses and paths.
var (
	// ErrNoAddress: no netdev of this network namespace has the address.
	ErrNoAddress = errors.New("no such address on this host")
	// ErrNoNetdev: this network namespace has no netdev of that name.
	ErrNoNetdev = errors.New("no such netdev")
	// ErrNotRDMA: neither the netdev nor what it is stacked on belongs to an
	// RDMA device.
	ErrNotRDMA = errors.New("netdev without an RDMA device")
	// ErrLinkDown: the netdev is down or has no carrier.
	ErrLinkDown = errors.New("link down")
	// ErrNoRoute: the kernel has no route to the address.
	ErrNoRoute = errors.New("no route")
	// ErrNoNeighbour: the next hop did not tell its link-layer address.
	ErrNoNeighbour = errors.New("next hop does not answer")
)

// Local is the place where a netdev or an address of this host meets RDMA.
type Local struct {
	Device string
	Port   uint8
	GID    GIDEntry // good until addresses change, as its index is
	Netdev string   // the one that has the address
	// Lower is the RDMA device's own netdev: Netdev itself, or below it if that
	// is a VLAN, a bond or the like.
	Lower     string
	LinkLayer LinkLayer
	NetdevMTU int // bytes, IP header included
	ActiveMTU MTU // of the port
}

// MTU is the largest MTU that both the port and the netdev carry.
func (l Local) MTU() MTU { return pathMTU(l.LinkLayer, l.ActiveMTU, l.NetdevMTU, 0) }

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
	Neighbour NeighbourState
}

// NeighbourState is what the kernel knows of a neighbour (NUD_* of Linux).
type NeighbourState uint16

const (
	NeighbourNone       NeighbourState = 0    // NUD_NONE
	NeighbourIncomplete NeighbourState = 0x01 // NUD_INCOMPLETE: asked for, no answer yet
	NeighbourReachable  NeighbourState = 0x02 // NUD_REACHABLE
	NeighbourStale      NeighbourState = 0x04 // NUD_STALE: known, not confirmed lately
	NeighbourDelay      NeighbourState = 0x08 // NUD_DELAY
	NeighbourProbe      NeighbourState = 0x10 // NUD_PROBE
	NeighbourFailed     NeighbourState = 0x20 // NUD_FAILED
	NeighbourNoARP      NeighbourState = 0x40 // NUD_NOARP: the link needs no link-layer addresses
	NeighbourPermanent  NeighbourState = 0x80 // NUD_PERMANENT: set by hand, or this host itself
)

func (s NeighbourState) String() string {
	switch s {
	case NeighbourNone:
		return "none"
	case NeighbourIncomplete:
		return "incomplete"
	case NeighbourReachable:
		return "reachable"
	case NeighbourStale:
		return "stale"
	case NeighbourDelay:
		return "delay"
	case NeighbourProbe:
		return "probe"
	case NeighbourFailed:
		return "failed"
	case NeighbourNoARP:
		return "noarp"
	case NeighbourPermanent:
		return "permanent"
	}
	return fmt.Sprintf("NeighbourState(%#x)", uint16(s))
}

// known tells whether packets can be sent to the neighbour now.
func (s NeighbourState) known() bool {
	return s&(NeighbourReachable|NeighbourStale|NeighbourDelay|NeighbourProbe|NeighbourNoARP|NeighbourPermanent) != 0
}

// LookupAddr finds the RDMA device, port and GID of an address of this host. It
// fails with [ErrNoAddress], [ErrLinkDown], [ErrNotRDMA] or [ErrNoGID]. The
// device is opened for a moment. Safe for concurrent use, as are all lookups.
func LookupAddr(ctx context.Context, addr netip.Addr) (Local, error) {
	return lookupAddr(ctx, addr)
}

// LookupNetdev finds the RDMA device and port of a netdev, or of what it is
// stacked on, and the netdev's GID most likely meant (see [GIDQuery]). It fails
// with [ErrNoNetdev], [ErrLinkDown], [ErrNotRDMA] or [ErrNoGID].
func LookupNetdev(ctx context.Context, name string) (Local, error) {
	return lookupNetdev(ctx, name)
}

// ResolvePath finds the way to an address as the kernel routes it: device,
// source address and GID, next hop and MTU. When the neighbour is unknown, one
// empty UDP datagram to the discard port makes the kernel ask for it, and the
// call waits for the answer, for five seconds at most. It fails with
// [ErrNoRoute], [ErrNoNeighbour] and what [LookupAddr] fails with.
func ResolvePath(ctx context.Context, dst netip.Addr) (Path, error) {
	return resolvePath(ctx, netip.Addr{}, dst)
}

// ResolvePathFrom is [ResolvePath] from a given source address of this host;
// routing rules may depend on it.
func ResolvePathFrom(ctx context.Context, src, dst netip.Addr) (Path, error) {
	return resolvePath(ctx, src, dst)
}

// roceHeaders is what the kernel takes off a netdev's MTU to get that of RoCE
// (iboe_get_mtu): GRH, UDP, BTH, XRC, atomic extension and CRC.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// RoCEMTU is the largest RDMA MTU that fits into IP packets of so many bytes,
// or 0 if none does.
func RoCEMTU(ip int) MTU {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes()+roceHeaders <= ip {
			return m
		}
	}
	return 0
}

// pathMTU is the smallest of port, netdev and route; a route without an MTU of
// its own has 0. On InfiniBand the IP MTUs are not RDMA's.
func pathMTU(link LinkLayer, port MTU, netdev, route int) MTU {
	if link == LinkInfiniBand {
		return port
	}
	m := min(port, RoCEMTU(netdev))
	if route > 0 {
		m = min(m, RoCEMTU(route))
	}
	return m
}

// gidOn chooses the GID of a netdev: that of an address, if one is given. An
// IPoIB netdev has the port's GID in its link-layer address, whatever its IP
// addresses are.
func gidOn(all []GIDEntry, dev netdev, addr netip.Addr) (GIDEntry, bool) {
	var fit []GIDEntry
	for _, e := range all {
		switch {
		case dev.infiniband:
			if len(dev.mac) == 20 && e.GID == GID(dev.mac[4:]) {
				fit = append(fit, e)
			}
		case e.IfIndex == dev.index:
			fit = append(fit, e)
		}
	}
	q := GIDQuery{Addr: addr}
	if dev.infiniband {
		q.Addr = netip.Addr{}
	}
	return q.choose(fit)
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
