// Package netpath finds the way from an IP address or a network interface (netdev) to
// RDMA: the device and port, the entry of the GID table, the next hop and its link-layer
// address, and the MTU. It asks the kernel over netlink and sysfs. It opens no device,
// needs no privileges, no cgo and no libibverbs.
//
// Find the device that serves an address of this host, and the way to a peer:
//
//	at, err := netpath.LookupAddr(ctx, netip.MustParseAddr("10.77.0.1"))
//	// at.Device is "mlx5_0", at.Port 1, at.Name "eth0"
//	gid, err := at.FindGID(ctx, at.Addr)
//	// gid.Index is what queue pairs and address handles take
//	p, err := netpath.Resolve(ctx, netip.MustParseAddr("10.77.0.2"))
//	// p.Local.Device, p.NextHop, p.MAC, p.MTU
//
// What a device reports only when it is opened, such as the active MTU of a port, is
// found by LookupAddr, LookupNetdev and ResolvePath of package verbs, which use this
// package.
//
// # Guarantees
//
// Results are current: nothing is cached, because addresses, routes and neighbours change
// while a program runs. They are those of the network namespace of the calling thread.
//
// A VLAN, bond, team, bridge, macvlan or ipvlan leads to the device of the netdev below
// it. With several devices below, or none in this namespace, as of a macvlan in a
// container, the GID tables decide: the device is the one with an entry of the netdev, at
// an active port if there are several. The same finds the port of an IPoIB netdev by the
// GID in the netdev's link-layer address. If no table has an entry yet, it is the first
// active port below.
//
// Errors name the operation, the object, the cause and what there is instead, and match a
// sentinel such as [ErrNotRDMA]. On systems other than Linux each lookup fails with
// [errors.ErrUnsupported]. No reply of the kernel makes the package panic. All functions
// may be called by any number of goroutines.
//
// # Costs
//
// A lookup lists the netdevs and addresses of the namespace, and the ports of all RDMA
// devices. For a netdev with a device that only GID tables show, it also reads those
// tables, one small file for each entry. [Resolve] also asks for one route and one
// neighbour, and waits for a neighbour that the kernel does not know. [Netdev.FindGID]
// reads one small file for each entry of the GID table up to the one that it finds.
package netpath
