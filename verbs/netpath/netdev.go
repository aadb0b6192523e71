package netpath

import (
	"net"
	"net/netip"
	"slices"
)

// Netdev is a network interface of this network namespace, and the RDMA port
// that belongs to it.
type Netdev struct {
	Name    string
	Index   int
	Kind    string // "vlan", "bond", "veth" and so on; empty for a NIC
	MTU     int    // bytes, IP header included
	MAC     net.HardwareAddr
	Up      bool // by the administrator
	Running bool // has a carrier
	// IPoIB: IP over InfiniBand. MAC has twenty bytes then, of which the last
	// sixteen are the port's GID.
	IPoIB  bool
	Addrs  []netip.Addr
	Device string // RDMA device; empty if it has none
	Port   uint8  // of Device; 0 if only the GID tells it, as with IPoIB
	Lower  string // the device's own netdev: Name, or what Name is stacked on
}

// iface is a netdev with what only lookups need to know of it.
type iface struct {
	Netdev
	noARP    bool
	loopback bool
	link     int // of a stacked kind: the netdev below
	master   int // the bond, team or bridge that has it
}

// ifaces are the netdevs of a network namespace.
type ifaces []iface

func (l ifaces) byIndex(i int) (iface, bool) {
	return l.find(func(n iface) bool { return n.Index == i })
}

func (l ifaces) byName(name string) (iface, bool) {
	return l.find(func(n iface) bool { return n.Name == name })
}

// byAddr finds the netdev of an address; its zone, if it has one, says which of
// several.
func (l ifaces) byAddr(a netip.Addr) (iface, bool) {
	a = a.Unmap()
	return l.find(func(n iface) bool {
		return (a.Zone() == "" || a.Zone() == n.Name) && slices.Contains(n.Addrs, a.WithZone(""))
	})
}

func (l ifaces) find(is func(iface) bool) (iface, bool) {
	if i := slices.IndexFunc(l, is); i >= 0 {
		return l[i], true
	}
	return iface{}, false
}

// below lists a netdev and all that it is stacked on, nearest first. The
// attribute "link" means that only for some kinds: of a veth it is the peer.
func (l ifaces) below(n iface) ifaces {
	out := ifaces{n}
	for i := 0; i < len(out); i++ {
		n := out[i]
		for _, c := range l {
			lower := c.master == n.Index
			switch n.Kind {
			case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
				lower = lower || c.Index == n.link
			}
			if _, seen := out.byIndex(c.Index); lower && !seen {
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

// withPort is a netdev with the RDMA port of it or of what it is stacked on, if
// there is one. Of a bond with several devices the first active port is taken.
func (l ifaces) withPort(n iface, ports []rdmaPort) (_ Netdev, ok bool) {
	active := false
	for _, b := range l.below(n) {
		for _, p := range ports {
			if p.ifIndex == b.Index && (!ok || p.active && !active) {
				n.Device, n.Port, n.Lower = p.device, p.port, b.Name
				active, ok = p.active, true
			}
		}
	}
	return n.Netdev, ok
}

// withPorts are all netdevs, each with its RDMA port.
func (l ifaces) withPorts(ports []rdmaPort) []Netdev {
	out := make([]Netdev, len(l))
	for i, n := range l {
		out[i], _ = l.withPort(n, ports)
	}
	return out
}

// underRDMA names the netdevs that lie under RDMA devices.
func (l ifaces) underRDMA(ports []rdmaPort) (names []string) {
	for _, p := range ports {
		if n, ok := l.byIndex(p.ifIndex); ok {
			names = append(names, n.Name+" ("+p.device+")")
		}
	}
	return names
}
