package netpath

import (
	"context"
	"fmt"
	"net/netip"
)

// Local is the place where an address of this host meets RDMA: the netdev that
// has it, with its Device.
type Local struct {
	Netdev
	Addr netip.Addr
}

// LookupAddr finds the RDMA device and port of an address of this host. It fails
// with [ErrNoAddress], [ErrLinkDown] or [ErrNotRDMA].
func LookupAddr(ctx context.Context, addr netip.Addr) (Local, error) {
	return lookupAddr(ctx, "look up", addr)
}

// LookupNetdev finds the RDMA device and port of a netdev, or of what it is
// stacked on. It fails with [ErrNoNetdev], [ErrLinkDown] or [ErrNotRDMA].
func LookupNetdev(ctx context.Context, name string) (Netdev, error) {
	return lookupNetdev(ctx, "look up", name)
}

// InterfaceMTU returns the MTU, in bytes with the IP header, of the netdev with that
// number. It asks the kernel for this netdev alone.
func InterfaceMTU(index int) (int, error) {
	mtu, err := interfaceMTU(index)
	return mtu, opError("find the MTU of", fmt.Sprint("netdev number ", index), err)
}

// Netdevs lists the network interfaces of this network namespace, those that
// are down and those without RDMA included.
func Netdevs(ctx context.Context) ([]Netdev, error) {
	list, err := netdevs(ctx)
	return list, opError("list netdevs", "", err)
}
