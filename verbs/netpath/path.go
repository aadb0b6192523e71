package netpath

import (
	"context"
	"net"
	"net/netip"
)

// Path is the way to another host, as the kernel's routing has it now.
type Path struct {
	// Local is where packets leave this host. Its Addr is Src or, when Dst is an
	// address of this host and no source was asked for, Dst.
	Local    Local
	Src, Dst netip.Addr
	NextHop  netip.Addr // the gateway, or Dst itself if that is on the link
	Loopback bool       // Dst is an address of this host
	RouteMTU int        // bytes, IP header included; 0 if the route has none of its own
	// MTU is the largest RoCE MTU, in bytes of payload, that netdev and route
	// carry. The port and what lies beyond the next hop may carry less. It is 0
	// with IP over InfiniBand, where the MTUs of IP are not RDMA's, and if even
	// the smallest does not fit.
	MTU int
	// MAC is the next hop's link-layer address: six bytes on Ethernet, twenty
	// with IP over InfiniBand; empty if the link has none.
	MAC       net.HardwareAddr
	Neighbour NeighbourState
}

// Resolve finds the way to an address as the kernel routes it: device, source
// address, next hop and MTU. When the neighbour is unknown, one empty UDP
// datagram to the discard port makes the kernel ask for it, and the call waits
// for the reply, for five seconds at most. It fails with [ErrNoRoute],
// [ErrNoNeighbour] and what [LookupAddr] fails with.
func Resolve(ctx context.Context, dst netip.Addr) (Path, error) {
	return resolve(ctx, "resolve the path to", netip.Addr{}, dst)
}

// ResolveFrom is [Resolve] from a given source address of this host; routing
// rules may depend on it.
func ResolveFrom(ctx context.Context, src, dst netip.Addr) (Path, error) {
	return resolve(ctx, "resolve the path to", src, dst)
}

// roceHeaders is what the kernel takes off a netdev's MTU to get that of RoCE
// (iboe_get_mtu): GRH, UDP, BTH, XRC, atomic extension and CRC.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// RoCEMTU is the largest RDMA MTU, in bytes of payload, that fits into IP packets
// of so many bytes, or 0 if none does.
func RoCEMTU(ip int) int {
	for m := 4096; m >= 256; m /= 2 {
		if m+roceHeaders <= ip {
			return m
		}
	}
	return 0
}

// pathMTU is [Path.MTU].
func pathMTU(n Netdev, route int) int {
	switch {
	case n.IPoIB:
		return 0
	case route > 0:
		return RoCEMTU(min(n.MTU, route))
	}
	return RoCEMTU(n.MTU)
}
