package verbs

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// GID is a global identifier: an IPv6 address, or on RoCE v2 also an IPv4
// address mapped into one.
type GID [16]byte

// Addr is the GID as an IP address; an IPv4-mapped one as IPv4.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// subnet is the prefix of a GID on InfiniBand.
func (g GID) subnet() [8]byte { return [8]byte(g[:8]) }

// GIDOf is the GID that stands for an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// GIDType is how packets to a GID are framed.
type GIDType uint32

const (
	GIDInfiniBand GIDType = iota // IBV_GID_TYPE_IB
	GIDRoCEv1                    // IBV_GID_TYPE_ROCE_V1
	GIDRoCEv2                    // IBV_GID_TYPE_ROCE_V2
)

func (t GIDType) String() string {
	return enumString(t, map[GIDType]string{GIDInfiniBand: "IB", GIDRoCEv1: "RoCE v1", GIDRoCEv2: "RoCE v2"})
}

// GIDEntry is a valid entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Type    GIDType
	Port    uint8
	Index   uint8 // changes whenever addresses come and go: never keep it
	IfIndex int   // netdev that carries it, 0 on InfiniBand
}

func (e GIDEntry) String() string {
	return fmt.Sprintf("%v %v (port %d, index %d)", e.Type, e.GID.Addr(), e.Port, e.Index)
}

// GIDs lists the valid GIDs of all ports, as far as queue pairs and address
// handles can name them: of a longer table the first 256 entries.
func (d *Device) GIDs() ([]GIDEntry, error) {
	var out []GIDEntry
	err := d.life.With("query GIDs of", func() error {
		size := 0
		for p := 1; p <= d.attr.Ports; p++ {
			var a cgo.PortAttr
			if err := cgo.QueryPort(d.ctx, uint8(p), &a); err != nil {
				return opError("query port of", d.name, err)
			}
			size += int(a.GIDTableLen)
		}
		if size == 0 {
			return nil
		}
		list, err := cgo.QueryGIDTable(d.ctx, size)
		if err != nil {
			return opError("query GIDs of", d.name, err)
		}
		for _, e := range list {
			if e.Index > math.MaxUint8 {
				continue
			}
			out = append(out, GIDEntry{
				GID: e.GID, Type: GIDType(e.Type), Port: uint8(e.Port),
				Index: uint8(e.Index), IfIndex: int(e.IfIndex),
			})
		}
		return nil
	})
	return out, err
}

// LocalMTU returns the largest MTU of packets from a local GID: that of its port or, on
// Ethernet, what fits into the MTU of its netdev, whichever is smaller. A VLAN, macvlan
// or bridge may have a smaller MTU than the port. It asks the kernel at each call. Two
// hosts take the smaller of both sides. A netdev that is too small for RoCE is an error.
func (d *Device) LocalMTU(gid GIDEntry) (MTU, error) {
	port, err := d.Port(gid.Port)
	if err != nil {
		return 0, err
	}
	return d.mtuOn(port, gid)
}

func (d *Device) mtuOn(port Port, gid GIDEntry) (MTU, error) {
	if gid.IfIndex == 0 || port.LinkLayer == LinkInfiniBand {
		return port.ActiveMTU, nil
	}
	ip, err := netpath.InterfaceMTU(gid.IfIndex)
	if err != nil { // the netdev is in another network namespace
		return port.ActiveMTU, nil
	}
	mtu := pathMTU(port.LinkLayer, port.ActiveMTU, roceMTU(ip))
	if mtu == 0 {
		return 0, opError("find the MTU on", d.name, ErrAttributes, "the netdev of ", gid, " carries ", ip, " bytes, and RoCE needs 352")
	}
	return mtu, nil
}
