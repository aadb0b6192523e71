package verbs

import (
	"context"
	"net"
	"net/netip"
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
	Addrs   []netip.Addr
	Device  string // RDMA device; empty if it has none
	Port    uint8  // 0 with IP over InfiniBand: the GID tells it
	Lower   string // the device's own netdev: Name, or what Name is stacked on
}

// Netdevs lists the network interfaces of this network namespace, those that
// are down and those without RDMA included. It opens no device.
func Netdevs(ctx context.Context) ([]Netdev, error) {
	list, err := netdevs(ctx)
	return list, opError("list netdevs", "", err)
}

// rows makes the exported list.
func (l ifaces) rows(ports []rdmaPort) []Netdev {
	out := make([]Netdev, len(l))
	for i, n := range l {
		out[i] = Netdev{Name: n.name, Index: n.index, Kind: n.kind, MTU: n.mtu, MAC: n.mac, Up: n.up, Running: n.running, Addrs: n.addrs}
		if p, lower, ok := l.portUnder(n, ports); ok {
			out[i].Device, out[i].Port, out[i].Lower = p.device, p.port, lower.name
		}
	}
	return out
}
