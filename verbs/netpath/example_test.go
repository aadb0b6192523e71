package netpath_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs/netpath"
)

// The device, the GID and the next hop for a peer, without opening anything.
func ExampleResolve() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p, err := netpath.Resolve(ctx, netip.MustParseAddr("10.77.0.2"))
	if err != nil {
		fmt.Println("use TCP:", err)
		return
	}
	gid, err := p.Local.FindGID(ctx, p.Local.Addr)
	if errors.Is(err, netpath.ErrNoGID) {
		fmt.Println("the kernel has not made a GID of the address yet")
		return
	}
	fmt.Printf("%s port %d, GID index %d, MTU %d, next hop %v\n", p.Local.Device, gid.Port, gid.Index, p.MTU, p.MAC)
}

// The netdevs under RDMA devices.
func ExampleNetdevs() {
	list, err := netpath.Netdevs(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range list {
		if n.Device != "" {
			fmt.Println(n.Name, n.Addrs, "is on", n.Device, "port", n.Port)
		}
	}
}
