package topo

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The spare link: an RDMA device that tests may take apart, with another host,
// which is a network namespace, at the other end.
const (
	SpareDevice    = "rxespare"
	SpareNetdev    = "spare0"
	SpareNamespace = "spare"
	sparePeer      = "peer0"
)

// Addresses of the spare link: its near end, its far end, and one that is
// reached by way of the far end.
var (
	SpareAddr   = netip.MustParseAddr("10.79.0.1")
	SparePeer   = netip.MustParseAddr("10.79.0.2")
	SpareBehind = netip.MustParseAddr("10.80.0.1")
)

// AddSpare makes the spare link.
func AddSpare() error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	if err := makeNamespace(SpareNamespace, func() error { return nil }); err != nil {
		return err
	}
	if err := n.addVeth(SpareNetdev, SpareNamespace+"/"+sparePeer); err != nil {
		return err
	}
	peer, err := dial(SpareNamespace)
	if err != nil {
		return err
	}
	defer peer.close()
	for _, a := range []netip.Addr{SparePeer, SpareBehind} {
		if err := peer.addAddr(sparePeer, a, 24); err != nil {
			return err
		}
	}
	if err := errors.Join(peer.up("lo"), peer.up(sparePeer)); err != nil {
		return err
	}
	if err := errors.Join(n.addAddr(SpareNetdev, SpareAddr, 24), n.up(SpareNetdev)); err != nil {
		return err
	}
	behind := route{dst: SpareBehind, bits: 24, via: []hop{{SparePeer, SpareNetdev}}}
	return errors.Join(n.addRoute(behind), AddRXE(SpareDevice, SpareNetdev))
}

// DelSpare removes the spare link and all that is stacked on it.
func DelSpare() error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	i, err := n.index(SpareNetdev)
	if err == nil {
		err = wrap(n.conn.Link.Delete(i), "delete %s", SpareNetdev)
	}
	path := filepath.Join(namespaces, SpareNamespace)
	return errors.Join(err, unix.Unmount(path, unix.MNT_DETACH), os.Remove(path))
}

// SetUp sets an interface up or down.
func SetUp(dev string, up bool) error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	if up {
		return n.up(dev)
	}
	i, err := n.index(dev)
	if err != nil {
		return err
	}
	return wrap(n.conn.Link.Set(&rtnetlink.LinkMessage{Index: i, Change: unix.IFF_UP}), "set down %s", dev)
}

// SetMTU sets the MTU of an interface.
func SetMTU(dev string, mtu int) error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	return n.setMTU(dev, uint32(mtu))
}

// AddVLAN makes a VLAN on an interface, with an address, and sets it up.
func AddVLAN(name, lower string, id int, a netip.Addr) error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	i, err := n.index(lower)
	if err != nil {
		return err
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint16(1, uint16(id)) // IFLA_VLAN_ID
	tag, err := ae.Encode()
	if err != nil {
		return err
	}
	err = n.conn.Link.New(&rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: name, Type: i, // the module's name for the interface below
		Info: &rtnetlink.LinkInfo{Kind: "vlan", Data: &rtnetlink.LinkData{Name: "vlan", Data: tag}},
	}})
	return errors.Join(wrap(err, "make %s", name), n.addAddr(name, a, 24), n.up(name))
}
