package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/verbs/netpath"
)

// GIDQuery says which GID is wanted. Zero fields match anything; the zero query finds
// the entry most likely meant: on active ports before others, RoCE v2 over IPv4, over a
// global IPv6 address, over a link-local one, then InfiniBand, then RoCE v1.
type GIDQuery struct {
	// Addr is an IP address of this host. On Ethernet it is the GID itself; of the
	// address of an IPoIB netdev it is the GID of the netdev's port. A zone names the
	// netdev, which matters where several have the same link-local address, as a VLAN
	// and its NIC do.
	Addr netip.Addr
	Type *GIDType
	Port uint8
	// IfIndex is the number of the netdev that carries it. It finds a GID again that
	// has moved to another index.
	IfIndex int
}

// FindGID chooses a GID by type and address. It considers the entries of this network
// namespace only, although the table has those of all, and prefers ports that are
// active. [ErrNoGID] lists what there is.
func (d *Device) FindGID(q GIDQuery) (GIDEntry, error) {
	all, err := d.GIDs()
	if err != nil {
		return GIDEntry{}, err
	}
	here := d.placeOf(all)
	if e, ok := q.choose(all, here); ok {
		return e, nil
	}
	return GIDEntry{}, d.noGID(q.String(), all, here)
}

func (d *Device) noGID(wanted string, all []GIDEntry, here place) error {
	have := make([]string, len(all))
	for i, e := range all {
		have[i] = e.String()
		if _, ok := here.owner(e); !ok {
			have[i] += " of another network namespace"
		}
	}
	return opError("find GID on", d.name, ErrNoGID, "wanted ", wanted, "; there are: ", strings.Join(have, ", "))
}

// LocalGID returns the GID for traffic from an IP address of this host: what
// [Device.FindGID] finds, or, if the device has no GID of q.Addr, what it finds for any
// address. A program that talks TCP over 127.0.0.1 or a network of its own can so use
// the device all the same.
func (d *Device) LocalGID(q GIDQuery) (GIDEntry, error) {
	if q.Addr.IsValid() && !q.Addr.IsUnspecified() {
		if e, err := d.FindGID(q); !errors.Is(err, ErrNoGID) {
			return e, err
		}
	}
	q.Addr = netip.Addr{}
	return d.FindGID(q)
}

// GIDFor returns the GID for queue pairs beside a TCP connection: that of its local
// address, as [Device.LocalGID] finds it.
func (d *Device) GIDFor(local net.Addr) (GIDEntry, error) {
	return d.LocalGID(GIDQuery{Addr: addrOf(local)})
}

// addrOf is the IP address of a connection's end, if it has one.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func (q GIDQuery) String() string {
	s := "any address"
	if q.Addr.IsValid() {
		s = q.Addr.String()
	}
	if q.Type != nil {
		s += " " + q.Type.String()
	}
	if q.Port != 0 {
		s += fmt.Sprintf(" on port %d", q.Port)
	}
	if q.IfIndex != 0 {
		s += fmt.Sprintf(" of netdev number %d", q.IfIndex)
	}
	return s
}

// place is what a choice depends on besides the GID table.
type place struct {
	known   bool             // whether the netdevs could be listed
	netdevs []netpath.Netdev // of this network namespace
	down    [256]bool        // ports that are not active
}

func (d *Device) placeOf(all []GIDEntry) (p place) {
	netdevs, err := netpath.Interfaces(context.Background())
	p.known, p.netdevs = err == nil, netdevs
	if d.attr.Ports < 2 {
		return p // no choice
	}
	asked := [256]bool{}
	for _, e := range all {
		if asked[e.Port] {
			continue
		}
		asked[e.Port] = true
		port, err := d.Port(e.Port)
		p.down[e.Port] = err == nil && !port.State.carries()
	}
	return p
}

// owner returns the netdev of an entry, without a name if it has none. It reports false
// if the netdev is of another network namespace.
func (p place) owner(e GIDEntry) (netpath.Netdev, bool) {
	if e.IfIndex == 0 || !p.known {
		return netpath.Netdev{}, true
	}
	for _, n := range p.netdevs {
		if n.Index == e.IfIndex {
			return n, n.HasGID(e.GID.Addr())
		}
	}
	return netpath.Netdev{}, false
}

// has reports whether an entry is the GID of an IP address.
func (p place) has(e GIDEntry, owner netpath.Netdev, a netip.Addr) bool {
	if e.GID.Addr() == a.Unmap().WithZone("") {
		return a.Zone() == "" || owner.Name == "" || owner.InZone(a.Zone())
	}
	if e.IfIndex != 0 {
		return false
	}
	for _, n := range p.netdevs {
		if n.IPoIB && n.HasAddr(a) && n.HasGID(e.GID.Addr()) {
			return true
		}
	}
	return false
}

func (q GIDQuery) choose(all []GIDEntry, here place) (best GIDEntry, ok bool) {
	bestRank := 0
	for _, e := range all {
		owner, mine := here.owner(e)
		switch {
		case !mine,
			q.Addr.IsValid() && !here.has(e, owner, q.Addr),
			q.Type != nil && e.Type != *q.Type,
			q.Port != 0 && e.Port != q.Port,
			q.IfIndex != 0 && e.IfIndex != q.IfIndex:
			continue
		}
		r := e.rank()
		if !here.down[e.Port] {
			r += activeRank
		}
		if r > bestRank {
			best, bestRank, ok = e, r, true
		}
	}
	return best, ok
}

// activeRank is above all differences between entries of one port.
const activeRank = 10

func (e GIDEntry) rank() int {
	a := e.GID.Addr()
	switch {
	case e.Type == GIDRoCEv2 && a.Is4():
		return 5
	case e.Type == GIDRoCEv2 && !a.IsLinkLocalUnicast():
		return 4
	case e.Type == GIDRoCEv2:
		return 3
	case e.Type == GIDInfiniBand:
		return 2
	}
	return 1
}
