package netpath

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

func lookupAddr(ctx context.Context, op string, addr netip.Addr) (Local, error) {
	h, err := dialHost(ctx)
	if err != nil {
		return Local{}, opError(op, addr.String(), err)
	}
	defer h.close()
	n, err := h.withAddr(op, addr)
	if err != nil {
		return Local{}, err
	}
	dev, err := h.rdma(op, addr.String(), n)
	if err != nil {
		return Local{}, err
	}
	return Local{dev, addr.Unmap()}, nil
}

func lookupNetdev(ctx context.Context, op, name string) (Netdev, error) {
	h, err := dialHost(ctx)
	if err != nil {
		return Netdev{}, opError(op, name, err)
	}
	defer h.close()
	n, ok := h.byName(name)
	if !ok {
		var names []string
		for _, n := range h.ifaces {
			names = append(names, n.Name)
		}
		return Netdev{}, opError(op, name, ErrNoNetdev, "there are: ", strings.Join(names, ", "))
	}
	return h.rdma(op, name, n)
}

func netdevs(ctx context.Context) ([]Netdev, error) {
	h, err := dialHost(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	ports, err := rdmaPorts(h.ifaces)
	return h.withPorts(ports), err
}

func interfaceMTU(index int) (int, error) {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	l, err := conn.Link.Get(uint32(index))
	if errors.Is(err, unix.ENODEV) || err == nil && l.Attributes == nil {
		return 0, ErrNoNetdev
	}
	if err != nil {
		return 0, err
	}
	return int(l.Attributes.MTU), nil
}

// host is a network namespace as it was when the lookup began.
type host struct {
	conn *rtnetlink.Conn
	ifaces
}

func dialHost(ctx context.Context) (*host, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	h := &host{conn: conn}
	if err := h.read(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return h, nil
}

func (h *host) close() { h.conn.Close() }

func (h *host) read() error {
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
		n := ifaceOf(l)
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
				n.Addrs = append(n.Addrs, ip.Unmap())
			}
		}
		h.ifaces = append(h.ifaces, n)
	}
	return nil
}

func ifaceOf(l rtnetlink.LinkMessage) iface {
	n := iface{
		Netdev: Netdev{
			Name:    l.Attributes.Name,
			Index:   int(l.Index),
			MTU:     int(l.Attributes.MTU),
			MAC:     l.Attributes.Address,
			Up:      l.Flags&unix.IFF_UP != 0,
			Running: l.Flags&unix.IFF_LOWER_UP != 0,
			IPoIB:   l.Type == unix.ARPHRD_INFINIBAND,
		},
		noARP:    l.Flags&unix.IFF_NOARP != 0,
		loopback: l.Flags&unix.IFF_LOOPBACK != 0,
		link:     int(l.Attributes.Type), // the module's name for IFLA_LINK
	}
	if l.Attributes.Info != nil {
		n.Kind = l.Attributes.Info.Kind
	}
	if l.Attributes.Master != nil {
		n.master = int(*l.Attributes.Master)
	}
	return n
}

func (h *host) withAddr(op string, addr netip.Addr) (iface, error) {
	n, ok := h.byAddr(addr)
	if ok {
		return n, nil
	}
	var have []string
	for _, n := range h.ifaces {
		for _, a := range n.Addrs {
			have = append(have, a.String()+" on "+n.Name)
		}
	}
	return n, opError(op, addr.String(), ErrNoAddress, "there are: ", strings.Join(have, ", "))
}

// rdma is the netdev with its RDMA port, which it must have.
func (h *host) rdma(op, object string, n iface) (Netdev, error) {
	switch {
	case !n.Up:
		return Netdev{}, opError(op, object, ErrLinkDown, n.Name, " is down: ip link set ", n.Name, " up")
	case !n.Running:
		return Netdev{}, opError(op, object, ErrLinkDown, n.Name, " has no carrier")
	}
	ports, err := rdmaPorts(h.ifaces)
	if err != nil {
		return Netdev{}, opError(op, object, err)
	}
	dev, ok := h.withPort(n, ports)
	if !ok {
		have := strings.Join(h.underRDMA(ports), ", ")
		if have == "" {
			have = "none"
		}
		return Netdev{}, opError(op, object, ErrNotRDMA, n.Name, "; netdevs with one: ", have)
	}
	return dev, nil
}
