package verbs

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/Mellanox/rdmamap"
	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/nldev"
)

func lookupAddr(ctx context.Context, addr netip.Addr) (Local, error) {
	const op = "look up"
	net, err := dialHostNet(ctx)
	if err != nil {
		return Local{}, opError(op, addr.String(), err)
	}
	defer net.close()
	n, err := net.withAddr(op, addr)
	if err != nil {
		return Local{}, err
	}
	return net.local(op, addr.String(), n, addr)
}

func lookupNetdev(ctx context.Context, name string) (Local, error) {
	const op = "look up"
	net, err := dialHostNet(ctx)
	if err != nil {
		return Local{}, opError(op, name, err)
	}
	defer net.close()
	n, ok := net.byName(name)
	if !ok {
		var names []string
		for _, n := range net.ifaces {
			names = append(names, n.name)
		}
		return Local{}, opError(op, name, ErrNoNetdev, "there are: ", strings.Join(names, ", "))
	}
	return net.local(op, name, n, netip.Addr{})
}

func netdevs(ctx context.Context) ([]Netdev, error) {
	net, err := dialHostNet(ctx)
	if err != nil {
		return nil, err
	}
	defer net.close()
	ports, err := rdmaPorts(net.ifaces)
	return net.rows(ports), err
}

// hostNet is a network namespace as it was when the lookup began.
type hostNet struct {
	conn *rtnetlink.Conn
	ifaces
}

func dialHostNet(ctx context.Context) (*hostNet, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	h := &hostNet{conn: conn}
	if err := h.read(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return h, nil
}

func (h *hostNet) close() { h.conn.Close() }

func (h *hostNet) read() error {
	links, err := h.conn.Link.List()
	if err != nil {
		return err
	}
	addrs, err := h.conn.Address.List()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Attributes == nil {
			continue
		}
		n := netdev{
			index:      int(l.Index),
			name:       l.Attributes.Name,
			mtu:        int(l.Attributes.MTU),
			mac:        l.Attributes.Address,
			up:         l.Flags&unix.IFF_UP != 0,
			running:    l.Flags&unix.IFF_LOWER_UP != 0,
			noARP:      l.Flags&unix.IFF_NOARP != 0,
			loopback:   l.Flags&unix.IFF_LOOPBACK != 0,
			infiniband: l.Type == unix.ARPHRD_INFINIBAND,
			link:       int(l.Attributes.Type), // the module's name for IFLA_LINK
		}
		if l.Attributes.Info != nil {
			n.kind = l.Attributes.Info.Kind
		}
		if l.Attributes.Master != nil {
			n.master = int(*l.Attributes.Master)
		}
		for _, a := range addrs {
			if a.Index != l.Index || a.Attributes == nil {
				continue
			}
			// Of a point-to-point link Address is the peer's.
			ip := a.Attributes.Local
			if ip == nil {
				ip = a.Attributes.Address
			}
			if ip, ok := netip.AddrFromSlice(ip); ok {
				n.addrs = append(n.addrs, ip.Unmap())
			}
		}
		h.ifaces = append(h.ifaces, n)
	}
	return nil
}

func (h *hostNet) withAddr(op string, addr netip.Addr) (netdev, error) {
	n, ok := h.byAddr(addr)
	if ok {
		return n, nil
	}
	var have []string
	for _, n := range h.ifaces {
		for _, a := range n.addrs {
			have = append(have, a.String()+" on "+n.name)
		}
	}
	return n, opError(op, addr.String(), ErrNoAddress, "there are: ", strings.Join(have, ", "))
}

// local finds the RDMA side of a netdev, with the GID of addr if that is valid.
func (h *hostNet) local(op, object string, n netdev, addr netip.Addr) (Local, error) {
	switch {
	case !n.up:
		return Local{}, opError(op, object, ErrLinkDown, n.name, " is down: ip link set ", n.name, " up")
	case !n.running:
		return Local{}, opError(op, object, ErrLinkDown, n.name, " has no carrier")
	}
	ports, err := rdmaPorts(h.ifaces)
	if err != nil {
		return Local{}, opError(op, object, err)
	}
	p, lower, ok := h.portUnder(n, ports)
	if !ok {
		have := strings.Join(h.withRDMA(ports), ", ")
		if have == "" {
			have = "none"
		}
		return Local{}, opError(op, object, ErrNotRDMA, n.name, "; netdevs with one: ", have)
	}
	dev, err := Open(p.device, DeviceConfig{})
	if err != nil {
		return Local{}, err
	}
	l, err := localOn(dev, op, object, n, addr)
	l.Lower = lower.name
	return l, errors.Join(err, dev.Close())
}

func localOn(dev *Device, op, object string, n netdev, addr netip.Addr) (Local, error) {
	all, err := dev.GIDs()
	if err != nil {
		return Local{}, err
	}
	gid, ok := gidOn(all, n, addr)
	if !ok {
		return Local{}, noGID(op, object+" on "+dev.Name(), all)
	}
	port, err := dev.Port(gid.Port)
	if err != nil {
		return Local{}, err
	}
	return Local{
		Device: dev.Name(), Port: gid.Port, GID: gid, Netdev: n.name, NetdevMTU: n.mtu,
		LinkLayer: port.LinkLayer, ActiveMTU: port.ActiveMTU,
	}, nil
}

// rdmaPorts lists the RDMA ports that lie on netdevs. rdmamap finds the device
// of an IPoIB netdev by its GUID, which the kernel's list does not tell. Of an
// Ethernet netdev it would read the whole GID table by files, so it is asked
// only if there is no RDMA netlink, as under a filter of system calls.
func rdmaPorts(all ifaces) ([]rdmaPort, error) {
	var out []rdmaPort
	devices, err := nldev.Devices()
	if errors.Is(err, nldev.ErrNone) && len(rdmamap.GetRdmaDeviceList()) == 0 {
		return nil, nil
	}
	refused := err != nil
	for _, d := range devices {
		ports, err := nldev.Ports(d.Index)
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			if p.NetdevIndex != 0 {
				out = append(out, rdmaPort{d.Name, uint8(p.Num), p.NetdevIndex, PortState(p.State) == PortActive})
			}
		}
	}
	for _, n := range all {
		if n.infiniband || refused && !n.loopback {
			if dev, err := rdmamap.GetRdmaDeviceForNetdevice(n.name); err == nil && dev != "" {
				out = append(out, rdmaPort{device: dev, ifIndex: n.index, active: n.running})
			}
		}
	}
	return out, nil
}
