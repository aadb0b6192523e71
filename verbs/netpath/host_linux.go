package netpath

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"

	"github.com/goverbs/goverbs/internal/sysroot"
)

func lookupAddr(ctx context.Context, op string, addr netip.Addr) (Local, error) {
	if err := zoned(op, addr, ErrNoAddress); err != nil {
		return Local{}, err
	}
	h, err := dialHost(ctx)
	if err != nil {
		return Local{}, opError(op, addr.String(), err)
	}
	defer h.close()
	n, err := h.withAddr(op, addr)
	if err != nil {
		return Local{}, err
	}
	dev, err := h.rdmaOf(ctx, op, addr.String(), n, addr)
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
	return h.rdma(ctx, op, name, n)
}

func netdevs(ctx context.Context) ([]Netdev, error) {
	h, err := dialHost(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	ports, tables, err := h.ports(ctx, h.ifaces)
	return h.withPorts(ports, tables), err
}

func interfaces(ctx context.Context) ([]Netdev, error) {
	h, err := dialHost(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	return h.withPorts(nil, nil), nil
}

// ports lists the RDMA ports on netdevs, and, for those of the given netdevs that have no
// port otherwise, the ports with an entry of them in the GID table.
func (h *host) ports(ctx context.Context, of ifaces) ([]rdmaPort, tabled, error) {
	ports, err := rdmaPorts(h.ifaces)
	if err != nil {
		return nil, nil, err
	}
	sys := infiniband(sysClass())
	defer sys.close()
	tables, err := readTables(ctx, sys, h.unsure(of, ports))
	return ports, tables, err
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
	links, err := listLinks()
	if err != nil {
		return err
	}
	addrs, err := h.conn.Address.List()
	if err != nil {
		return err
	}
	for _, n := range links {
		for _, a := range addrs {
			if int(a.Index) != n.Index || a.Attributes == nil {
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
	why := ""
	if !addr.IsValid() || addr.IsUnspecified() {
		why = "name one; "
	}
	return n, opError(op, addr.String(), ErrNoAddress, why, "there are: ", strings.Join(have, ", "))
}

// rdmaOf is rdma for one address of the netdev. Several simulated devices can lie on lo: the
// first choice is one that has the address in its GID table.
func (h *host) rdmaOf(ctx context.Context, op, object string, n iface, addr netip.Addr) (Netdev, error) {
	if n.Loopback && sysroot.StandIn() {
		only := n
		only.Loopback, only.Addrs = false, []netip.Addr{addr.Unmap().WithZone("")} // it is no GID that has another one
		if dev, err := h.rdma(ctx, op, object, only); err == nil {
			dev.Loopback, dev.Addrs = n.Loopback, n.Addrs
			return dev, nil
		}
	}
	return h.rdma(ctx, op, object, n)
}

// rdma is the netdev with its RDMA port, which it must have.
func (h *host) rdma(ctx context.Context, op, object string, n iface) (Netdev, error) {
	switch {
	case !n.Up:
		return Netdev{}, opError(op, object, ErrLinkDown, n.Name, " is down: ip link set ", n.Name, " up")
	case !n.Running:
		return Netdev{}, opError(op, object, ErrLinkDown, n.Name, " has no carrier")
	}
	ports, tables, err := h.ports(ctx, ifaces{n})
	if err != nil {
		return Netdev{}, opError(op, object, err)
	}
	dev, ok := h.withPort(n, ports, tables)
	if !ok {
		have := strings.Join(h.underRDMA(ports), ", ")
		if have == "" {
			have = "none; rdmactl doctor says why"
		}
		return Netdev{}, opError(op, object, ErrNotRDMA, n.Name, "; netdevs with one: ", have)
	}
	return dev, nil
}
