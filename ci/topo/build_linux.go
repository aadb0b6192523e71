package topo

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// Build makes a topology by its name: "wire", "ecmp", "hosts" or "none". It
// must run as root in a network namespace of its own, such as a guest's.
func Build(name string, host, hosts int) error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.up("lo"); err != nil {
		return err
	}
	switch name {
	case "none":
		return nil
	case "wire":
		err = n.wire()
	case "ecmp":
		err = n.ecmp()
	case "hosts":
		return n.host(host)
	default:
		return fmt.Errorf("unknown: there are wire, ecmp, hosts and none")
	}
	if err != nil {
		return err
	}
	for i, dev := range []string{"h0", "h1"} {
		if err := AddRXE(fmt.Sprintf("rxe%d", i), dev); err != nil {
			return err
		}
	}
	return ProveWire("h0", Addr(0), "h1", Addr(1))
}

// wire joins h0 and h1 by a cable.
func (n *net) wire() error {
	if err := n.addVeth("h0", "h1"); err != nil {
		return err
	}
	return n.ends()
}

// ends gives both ends their addresses, and routes by which packets between
// them leave through one and arrive through the other. Both addresses are this
// kernel's own: with the usual rules it would hand the packets over by itself,
// and rxe would drop them. With gateways, end i reaches the other by number i.
func (n *net) ends(gateways ...netip.Addr) error {
	for i, dev := range []string{"h0", "h1"} {
		if err := n.addAddr(dev, Addr(i), 24); err != nil {
			return err
		}
		if err := n.up(dev); err != nil {
			return err
		}
		if err := sysctls("net/ipv4/conf/"+dev, "accept_local=1", "rp_filter=0", "arp_ignore=1", "arp_announce=2"); err != nil {
			return err
		}
	}
	if err := sysctls("net/ipv4/conf/all", "rp_filter=0"); err != nil {
		return err
	}
	for i, dev := range []string{"h0", "h1"} {
		table := 101 + i
		if err := n.addRule(rule{pref: 5 + i, iif: dev, table: tableLocal}); err != nil {
			return err
		}
		if err := n.addRule(rule{pref: 10 + i, from: only(Addr(i)), to: only(Addr(1 - i)), table: table}); err != nil {
			return err
		}
		if err := n.addRoute(route{dst: Addr(0), bits: 24, dev: dev, src: Addr(i), table: table}); err != nil {
			return err
		}
		if len(gateways) > 0 {
			via := []hop{{gateways[i], dev}}
			if err := n.addRoute(route{dst: Addr(1 - i), bits: 32, via: via, src: Addr(i), table: table}); err != nil {
				return err
			}
		}
	}
	// The rule for local addresses comes last instead of first.
	if err := n.addRule(rule{pref: 100, table: tableLocal}); err != nil {
		return err
	}
	return n.delRule(rule{pref: 0, table: tableLocal})
}

// host is one of several guests on one wire.
func (n *net) host(i int) error {
	if err := n.rename("eth0", "enp", "ens", "eth"); err != nil {
		return err
	}
	if err := n.setMTU("eth0", MTU); err != nil {
		return err
	}
	if err := n.addAddr("eth0", Addr(i), 24); err != nil {
		return err
	}
	if err := n.up("eth0"); err != nil {
		return err
	}
	return AddRXE("rxe0", "eth0")
}

// sysctls writes name=value settings below a folder of /proc/sys.
func sysctls(dir string, settings ...string) error {
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if err := os.WriteFile("/proc/sys/"+dir+"/"+name, []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}
