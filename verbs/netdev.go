package verbs

import (
	"net"
	"net/netip"
	"slices"
)

// netdev is what a lookup needs to know of a network interface.
type netdev struct {
	index      int
	name       string
	mtu        int
	mac        net.HardwareAddr
	up         bool // by the administrator
	running    bool // has a carrier
	noARP      bool
	loopback   bool
	infiniband bool
	kind       string // "vlan", "bond", "veth" and so on; empty for a NIC
	link       int    // of a stacked kind: the netdev below
	master     int    // the bond, team or bridge that has it
	addrs      []netip.Addr
}

// ifaces are the netdevs of a network namespace.
type ifaces []netdev

func (l ifaces) byIndex(i int) (netdev, bool) {
	return l.find(func(n netdev) bool { return n.index == i })
}

func (l ifaces) byName(name string) (netdev, bool) {
	return l.find(func(n netdev) bool { return n.name == name })
}

// byAddr finds the netdev of an address; its zone, if it has one, says which of
// several.
func (l ifaces) byAddr(a netip.Addr) (netdev, bool) {
	a = a.Unmap()
	return l.find(func(n netdev) bool {
		return (a.Zone() == "" || a.Zone() == n.name) && slices.Contains(n.addrs, a.WithZone(""))
	})
}

func (l ifaces) find(is func(netdev) bool) (netdev, bool) {
	if i := slices.IndexFunc(l, is); i >= 0 {
		return l[i], true
	}
	return netdev{}, false
}

// below lists a netdev and all that it is stacked on, nearest first. The
// attribute "link" means that only for some kinds: of a veth it is the peer.
func (l ifaces) below(n netdev) ifaces {
	out := ifaces{n}
	for i := 0; i < len(out); i++ {
		n := out[i]
		for _, c := range l {
			lower := c.master == n.index
			switch n.kind {
			case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
				lower = lower || c.index == n.link
			}
			if _, seen := out.byIndex(c.index); lower && !seen {
				out = append(out, c)
			}
		}
	}
	return out
}

// rdmaPort is a port of an RDMA device and the netdev on which it lies.
type rdmaPort struct {
	device  string
	port    uint8 // 0 if only the device is known
	ifIndex int
	active  bool
}

// portUnder finds the RDMA port of a netdev or of what it is stacked on. Of a
// bond with several devices the first active port is taken.
func (l ifaces) portUnder(n netdev, ports []rdmaPort) (p rdmaPort, lower netdev, ok bool) {
	for _, b := range l.below(n) {
		for _, c := range ports {
			if c.ifIndex == b.index && (!ok || c.active && !p.active) {
				p, lower, ok = c, b, true
			}
		}
	}
	return p, lower, ok
}

// withRDMA names the netdevs that lie under RDMA devices.
func (l ifaces) withRDMA(ports []rdmaPort) (names []string) {
	for _, p := range ports {
		if n, ok := l.byIndex(p.ifIndex); ok {
			names = append(names, n.name+" ("+p.device+")")
		}
	}
	return names
}
