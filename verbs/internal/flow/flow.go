// Package flow encodes the rules by which a device steers packets to queue pairs.
package flow

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/cgo"
)

// Type says which packets a rule is for (enum ibv_flow_attr_type).
type Type uint32

const (
	Matching Type = 0 // IBV_FLOW_ATTR_NORMAL: those that the rule's headers fit
	Default  Type = 1 // IBV_FLOW_ATTR_ALL_DEFAULT: those that no other rule fits
	Sniffer  Type = 3 // IBV_FLOW_ATTR_SNIFFER: copies of all packets of the port
)

// Protocol is a transport with ports (enum ibv_flow_spec_type).
type Protocol uint32

const (
	TCP Protocol = 0x40 // IBV_FLOW_SPEC_TCP
	UDP Protocol = 0x41 // IBV_FLOW_SPEC_UDP
)

// Rule is a FlowRule of package experimental.
type Rule struct {
	Type     Type
	Priority uint16
	Share    bool

	DstMAC, SrcMAC net.HardwareAddr
	EtherType      uint16
	VLAN           *uint16

	Dst, Src netip.Prefix

	Protocol         Protocol
	DstPort, SrcPort uint16
}

// Attr returns the rule for package cgo, without a port.
func (r *Rule) Attr() (cgo.FlowAttr, error) {
	a := cgo.FlowAttr{Type: uint32(r.Type), Priority: r.Priority}
	if err := r.check(); err != nil {
		return a, err
	}
	if r.Share {
		const dontTrap = 1 << 1
		a.Flags = dontTrap
	}
	a.Ethernet = r.Type == Matching // mlx4 wants one in each rule
	whole := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if copy(a.DstMAC[:], r.DstMAC) > 0 {
		a.DstMACMask = whole
	}
	if copy(a.SrcMAC[:], r.SrcMAC) > 0 {
		a.SrcMACMask = whole
	}
	if r.EtherType != 0 {
		a.EtherType, a.EtherTypeMask = r.EtherType, 0xffff
	}
	if r.VLAN != nil {
		a.VLAN, a.VLANMask = *r.VLAN, vlanBits
	}
	for _, p := range []netip.Prefix{r.Dst, r.Src} {
		switch {
		case p.Addr().Is4():
			a.IPVersion = 4
		case p.Addr().Is6():
			a.IPVersion = 6
		}
	}
	a.DstIP, a.DstIPMask = prefix(r.Dst)
	a.SrcIP, a.SrcIPMask = prefix(r.Src)
	a.Transport = uint32(r.Protocol)
	if r.DstPort != 0 {
		a.DstPort, a.DstPortMask = r.DstPort, 0xffff
	}
	if r.SrcPort != 0 {
		a.SrcPort, a.SrcPortMask = r.SrcPort, 0xffff
	}
	return a, nil
}

const vlanBits = 0xfff

func (r *Rule) check() error {
	headers := *r
	headers.Type, headers.Priority, headers.Share = 0, 0, false
	switch {
	case r.Type > Sniffer:
		return fmt.Errorf("type %d", r.Type)
	case r.Type != Matching && (r.Share || headers.some()):
		return fmt.Errorf("only a rule of type FlowMatching has headers, or shares")
	case len(r.DstMAC)%6 != 0 || len(r.SrcMAC)%6 != 0 || len(r.DstMAC) > 6 || len(r.SrcMAC) > 6:
		return fmt.Errorf("an Ethernet address has 6 bytes")
	case r.VLAN != nil && *r.VLAN > vlanBits:
		return fmt.Errorf("VLAN %d", *r.VLAN)
	case r.Dst.IsValid() && r.Src.IsValid() && r.Dst.Addr().Is4() != r.Src.Addr().Is4():
		return fmt.Errorf("%v and %v are of different versions of IP", r.Dst, r.Src)
	case r.Dst.Addr().Is4In6() || r.Src.Addr().Is4In6():
		return fmt.Errorf("an IPv4 address in IPv6 stands in no packet")
	case r.Protocol != 0 && r.Protocol != TCP && r.Protocol != UDP:
		return fmt.Errorf("protocol %#x", uint32(r.Protocol))
	case r.Protocol == 0 && (r.DstPort != 0 || r.SrcPort != 0):
		return fmt.Errorf("ports of no protocol")
	case r.Protocol != 0 && !r.Dst.IsValid() && !r.Src.IsValid() && r.EtherType == 0:
		return fmt.Errorf("ports without a version of IP: give a prefix, such as 0.0.0.0/0, or the EtherType")
	}
	return nil
}

// some reports whether the rule names any header.
func (r *Rule) some() bool {
	return r.DstMAC != nil || r.SrcMAC != nil || r.EtherType != 0 || r.VLAN != nil ||
		r.Dst.IsValid() || r.Src.IsValid() || r.Protocol != 0 || r.DstPort != 0 || r.SrcPort != 0
}

// prefix is a prefix as address and mask, at the start of the arrays.
func prefix(p netip.Prefix) (addr, mask [16]byte) {
	if !p.IsValid() {
		return addr, mask
	}
	copy(addr[:], p.Masked().Addr().AsSlice())
	copy(mask[:], net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	return addr, mask
}
