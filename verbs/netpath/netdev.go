package netpath

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/internal/sysroot"
)

// Netdev is a network interface of this network namespace, and the RDMA port
// that belongs to it.
type Netdev struct {
	Name    string
	Index   int
	Kind    string // "vlan", "bond", "veth" and so on; empty for a NIC
	VLAN    int    // its tag, or that of the nearest VLAN that it is stacked on; 0 for none
	MTU     int    // bytes, IP header included
	MAC     net.HardwareAddr
	Up      bool // by the administrator
	Running bool // has a carrier
	// Loopback: lo, or another netdev that leads nowhere else.
	Loopback bool
	// IPoIB: IP over InfiniBand. MAC has twenty bytes then, of which the last
	// sixteen are the port's GID.
	IPoIB  bool
	Addrs  []netip.Addr
	Device string // RDMA device; empty if it has none
	Port   uint8  // of Device; 0 if only the GID shows it, as with IPoIB
	// Lower is the device's own netdev: Name, or what Name is stacked on. It is empty
	// if that is in another network namespace.
	Lower string
}

// HasGID reports whether a GID with this address can be of the netdev: one of its IP
// addresses, or the link-local address that the kernel makes of its MAC. With IPoIB it is
// the GID in the link-layer address, and no other. The GID table holds the entries of all
// network namespaces, in which numbers and names of netdevs repeat.
func (n Netdev) HasGID(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	switch {
	case n.IPoIB:
		return len(n.MAC) == 20 && a == netip.AddrFrom16([16]byte(n.MAC[4:])).Unmap()
	case n.Loopback || slices.Contains(n.Addrs, a):
		return true
	case !a.Is6() || !a.IsLinkLocalUnicast() || len(n.MAC) != 6:
		return false
	}
	// The two bytes in the middle are ff:fe, or a number of the netdev or VLAN. One
	// bit of the first byte may be inverted.
	b := a.As16()
	id := [6]byte{b[8] &^ 2, b[9], b[10], b[13], b[14], b[15]}
	mac := [6]byte(n.MAC)
	mac[0] &^= 2
	return id == mac
}

// HasAddr reports whether the netdev has the IP address, in its zone if it has one. All of
// 127.0.0.0/8 is on lo.
func (n Netdev) HasAddr(a netip.Addr) bool {
	a = a.Unmap()
	own := slices.Contains(n.Addrs, a.WithZone("")) || n.Loopback && a.Is4() && a.IsLoopback()
	return own && (a.Zone() == "" || n.InZone(a.Zone()))
}

// InZone reports whether the zone of an IPv6 address is the netdev's name or number.
func (n Netdev) InZone(zone string) bool { return zone == n.Name || zone == strconv.Itoa(n.Index) }

// iface is a netdev with what only lookups need to know of it.
type iface struct {
	Netdev
	noARP  bool
	tag    int // of a VLAN
	link   int // of a stacked kind: the netdev below, if it is in this namespace
	master int // the bond, team or bridge that has it
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
	return l.find(func(n iface) bool { return n.HasAddr(a) })
}

// leaves returns an error if packets from a source address leave by a netdev that does not
// have it, although another one has: the device of the route has no GID of the address.
func (l ifaces) leaves(op string, by iface, src, dst netip.Addr) error {
	on, ok := l.byAddr(src)
	if !ok || by.HasAddr(src) {
		return nil
	}
	return opError(op, dst.String(), ErrNoGID, "the source address ", src, " is on ", on.Name, ", and the route leaves by ", by.Name,
		": give the address a routing table of its own (ip rule add from ", src, " table N), or each netdev a subnet of its own")
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

// tabled are the ports with an entry of a netdev in the GID table, by the netdev's number.
type tabled map[int]rdmaPort

// withPort returns a netdev with its RDMA port, if there is one. The netdev's own port is
// the first choice, then the only port among the netdevs that it is stacked on, then the
// one with an entry of it in the GID table; that also finds an IPoIB netdev, and a macvlan
// over a netdev in another namespace. Last comes the first active port of several below
// it, if no table has an entry of it yet.
func (l ifaces) withPort(n iface, ports []rdmaPort, tables tabled) (_ Netdev, ok bool) {
	n.VLAN = l.tag(n)
	below, sure := l.portBelow(n, ports)
	p, found := tables[n.Index]
	switch {
	case below.device != "" && (sure || !found):
		p = below
	case !found:
		return n.Netdev, false
	default:
		p.ifIndex = 0
		for _, own := range ports {
			if own.device == p.device && (own.port == p.port || own.port == 0) {
				p.ifIndex = own.ifIndex
			}
		}
		if n.IPoIB || sysroot.StandIn() {
			p.ifIndex = n.Index
		}
	}
	n.Device, n.Port = p.device, p.port
	if lower, here := l.byIndex(p.ifIndex); here {
		n.Lower = lower.Name
	}
	return n.Netdev, true
}

// portBelow finds the port of a netdev or of what it is stacked on: of several the first
// active one. It is sure if there was no choice.
func (l ifaces) portBelow(n iface, ports []rdmaPort) (found rdmaPort, sure bool) {
	count := 0
	for _, b := range l.below(n) {
		for _, p := range ports {
			if p.ifIndex != b.Index {
				continue
			}
			if b.Index == n.Index {
				return p, true
			}
			if count++; count == 1 || p.active && !found.active {
				found = p
			}
		}
	}
	return found, count == 1
}

// tag is the tag of the nearest VLAN in a stack.
func (l ifaces) tag(n iface) int {
	for _, b := range l.below(n) {
		if b.tag != 0 {
			return b.tag
		}
	}
	return 0
}

// unsure lists the netdevs with ports that only GID tables show.
func (l ifaces) unsure(of ifaces, ports []rdmaPort) (out ifaces) {
	for _, n := range of {
		if _, sure := l.portBelow(n, ports); !sure && (!n.Loopback || sysroot.StandIn()) {
			out = append(out, n)
		}
	}
	return out
}

// withPorts returns all netdevs, each with its RDMA port.
func (l ifaces) withPorts(ports []rdmaPort, tables tabled) []Netdev {
	out := make([]Netdev, len(l))
	for i, n := range l {
		out[i], _ = l.withPort(n, ports, tables)
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
