package netpath

import (
	"errors"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// listLinks lists the netdevs of this network namespace, without their addresses.
func listLinks() (ifaces, error) {
	b, err := (&rtnetlink.LinkMessage{}).MarshalBinary()
	if err != nil {
		return nil, err
	}
	msgs, err := rtnetlinkAsk(unix.RTM_GETLINK, netlink.Dump, b)
	if err != nil {
		return nil, err
	}
	var out ifaces
	for _, m := range msgs {
		n, err := ifaceOf(m.Data)
		if err != nil {
			return nil, err
		}
		if n.Name != "" {
			out = append(out, n)
		}
	}
	return out, nil
}

func interfaceMTU(index int) (int, error) {
	b, err := (&rtnetlink.LinkMessage{Index: uint32(index)}).MarshalBinary()
	if err != nil {
		return 0, err
	}
	msgs, err := rtnetlinkAsk(unix.RTM_GETLINK, 0, b)
	if errors.Is(err, unix.ENODEV) || err == nil && len(msgs) == 0 {
		return 0, ErrNoNetdev
	}
	if err != nil {
		return 0, err
	}
	n, err := ifaceOf(msgs[0].Data)
	return n.MTU, err
}

func ifaceOf(b []byte) (iface, error) {
	var l rtnetlink.LinkMessage
	if err := l.UnmarshalBinary(b); err != nil || l.Attributes == nil {
		return iface{}, err
	}
	n := iface{
		Netdev: Netdev{
			Name:     l.Attributes.Name,
			Index:    int(l.Index),
			MTU:      int(l.Attributes.MTU),
			MAC:      l.Attributes.Address,
			Up:       l.Flags&unix.IFF_UP != 0,
			Running:  l.Flags&unix.IFF_LOWER_UP != 0,
			Loopback: l.Flags&unix.IFF_LOOPBACK != 0,
			IPoIB:    l.Type == unix.ARPHRD_INFINIBAND,
		},
		noARP: l.Flags&unix.IFF_NOARP != 0,
		link:  int(l.Attributes.Type), // the module's name for IFLA_LINK
	}
	if i := l.Attributes.Info; i != nil {
		n.Kind = i.Kind
		if d, ok := i.Data.(*rtnetlink.LinkData); ok && i.Kind == "vlan" {
			n.tag = vlanTag(d.Data)
		}
	}
	if l.Attributes.Master != nil {
		n.master = int(*l.Attributes.Master)
	}
	if len(b) <= unix.SizeofIfInfomsg {
		return n, nil
	}
	// The number in IFLA_LINK is of another namespace if the message says which;
	// rtnetlink does not know the attribute.
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return iface{}, err
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_LINK_NETNSID {
			n.link = 0
		}
	}
	return n, ad.Err()
}

// vlanTag is the tag in the attributes of a VLAN, 0 if they have none.
func vlanTag(b []byte) (tag int) {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return 0
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_VLAN_ID && len(ad.Bytes()) == 2 {
			tag = int(ad.Uint16())
		}
	}
	return tag
}
