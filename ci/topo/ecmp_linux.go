package topo

import (
	"fmt"
	"net/netip"
)

// PathDev returns the interface of path i in a router's namespace.
func PathDev(i int) string { return fmt.Sprintf("p%d", i) }

// Routers are the names of the two network namespaces of "ecmp": the one
// behind h0 and the one behind h1.
var Routers = [2]string{"r0", "r1"}

// ecmp puts two routers between h0 and h1, joined by four links that they
// choose by a hash over addresses and ports. The ends stay in this namespace,
// where the sockets of rxe live.
func (n *net) ecmp() error {
	for _, r := range Routers {
		err := makeNamespace(r, func() error {
			return sysctls("net/ipv4", "ip_forward=1", "fib_multipath_hash_policy=1", "conf/all/rp_filter=0", "conf/default/rp_filter=0")
		})
		if err != nil {
			return err
		}
	}
	gateway := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(254 - i)}) }
	for i := range Routers {
		if err := n.addVeth(fmt.Sprintf("h%d", i), Routers[i]+"/host"); err != nil {
			return err
		}
	}
	for p := range Paths {
		if err := n.addVeth(Routers[0]+"/"+PathDev(p), Routers[1]+"/"+PathDev(p)); err != nil {
			return err
		}
	}
	for i, name := range Routers {
		if err := router(name, i, gateway(i)); err != nil {
			return fmt.Errorf("router %s: %w", name, err)
		}
	}
	return n.ends(gateway(0), gateway(1))
}

// router sets up router i, with end i as its host.
func router(name string, i int, own netip.Addr) error {
	r, err := dial(name)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.up("host"); err != nil {
		return err
	}
	if err := r.addAddr("host", own, 32); err != nil {
		return err
	}
	if err := r.addRoute(route{dst: Addr(i), bits: 32, dev: "host"}); err != nil {
		return err
	}
	hopAddr := func(path, router int) netip.Addr {
		return netip.AddrFrom4([4]byte{10, 78, byte(path), byte(router + 1)})
	}
	var hops []hop
	for p := range Paths {
		if err := r.addAddr(PathDev(p), hopAddr(p, i), 24); err != nil {
			return err
		}
		if err := r.up(PathDev(p)); err != nil {
			return err
		}
		hops = append(hops, hop{hopAddr(p, 1-i), PathDev(p)})
	}
	return r.addRoute(route{dst: Addr(1 - i), bits: 32, via: hops})
}
