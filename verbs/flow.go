package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// FlowType says which packets a rule is for (enum ibv_flow_attr_type).
type FlowType uint32

const (
	FlowMatching         FlowType = 0 // IBV_FLOW_ATTR_NORMAL: those that the rule's headers fit
	FlowDefault          FlowType = 1 // IBV_FLOW_ATTR_ALL_DEFAULT: those that no other rule fits
	FlowMulticastDefault FlowType = 2 // IBV_FLOW_ATTR_MC_DEFAULT: the multicasts among them
	FlowSniffer          FlowType = 3 // IBV_FLOW_ATTR_SNIFFER: copies of all packets of the port
)

// FlowProtocol is a transport with ports (enum ibv_flow_spec_type).
type FlowProtocol uint32

const (
	FlowTCP FlowProtocol = 0x40 // IBV_FLOW_SPEC_TCP
	FlowUDP FlowProtocol = 0x41 // IBV_FLOW_SPEC_UDP
)

// FlowRule says which packets a queue pair receives: those in which each field that is
// set here has that value. The zero rule matches all packets. Numbers are in host byte
// order.
type FlowRule struct {
	Type FlowType
	// Priority decides between rules that match the same packet: the lower number wins.
	// Devices differ in which values they take.
	Priority uint16
	// Share lets rules of lower priority see the packet too
	// (IBV_FLOW_ATTR_FLAGS_DONT_TRAP).
	Share bool

	DstMAC, SrcMAC net.HardwareAddr // 6 bytes; nil: any
	EtherType      uint16           // 0: any
	VLAN           *uint16          // number, 0 to 4095; nil: any, tagged or not

	// Dst and Src are both IPv4 or both IPv6; the zero prefix is any address.
	// Some devices take only whole addresses.
	Dst, Src netip.Prefix

	Protocol         FlowProtocol // 0: any
	DstPort, SrcPort uint16       // 0: any
}

// Flow is a rule in force.
type Flow struct {
	life life.Life
	dev  *Device
	flow cgo.Flow
}

// CreateFlow makes a queue pair receive the packets of its port that fit a rule.
// A [RawPacket] queue pair receives nothing without one; a [UD] queue pair can
// have rules too. The process needs CAP_NET_RAW. The rule is in force until Close,
// which comes before that of the queue pair. [ErrUnsupported] says that the
// device steers no flows, [ErrAttributes] that it cannot do this one. Safe for
// concurrent use.
func (q *QP) CreateFlow(r FlowRule) (*Flow, error) {
	const op = "create flow on"
	if err := q.life.Open(op); err != nil {
		return nil, err
	}
	a, err := r.raw()
	if q.typ != RawPacket && q.typ != UD {
		err = fmt.Errorf("%w: a queue pair of %v takes no packets by rules", ErrAttributes, q.typ)
	}
	if err != nil {
		return nil, opError(op, q.life.Label, err)
	}
	a.Port = q.gid.Port
	f := &Flow{dev: q.pd.dev}
	if err := f.life.Attach("flow", life.Label("flow"), &q.life); err != nil {
		return nil, err
	}
	if f.flow, err = cgo.CreateFlow(q.qp, &a); err != nil {
		f.life.Detach("flow")
		detail := "the device steers no flows"
		switch {
		case isErrno(err, syscall.EINVAL):
			err, detail = class(ErrAttributes, err), "the device cannot match these headers, masks or priority"
		case isErrno(err, syscall.EPERM):
			detail = "it needs CAP_NET_RAW"
		case isErrno(err, syscall.EEXIST), isErrno(err, syscall.EBUSY):
			detail = "there is such a rule"
		case isErrno(err, syscall.ENOMEM), isErrno(err, syscall.ENOSPC):
			detail = "the device has no room, or no such priority"
		}
		return nil, opError(op, q.life.Label, unsupported(err), detail)
	}
	return f, nil
}

// Close ends the rule. Closing twice is not an error.
func (f *Flow) Close() error {
	return f.life.Close("flow", nil, func() error { return f.dev.destroyed(cgo.DestroyFlow(f.flow)) })
}

func (r *FlowRule) raw() (cgo.FlowAttr, error) {
	a := cgo.FlowAttr{Type: uint32(r.Type), Priority: r.Priority}
	if err := r.check(); err != nil {
		return a, fmt.Errorf("%w: %w", ErrAttributes, err)
	}
	if r.Share {
		const dontTrap = 1 << 1
		a.Flags = dontTrap
	}
	a.Ethernet = r.Type == FlowMatching // mlx4 wants one in each rule
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
	a.DstIP, a.DstIPMask = flowPrefix(r.Dst)
	a.SrcIP, a.SrcIPMask = flowPrefix(r.Src)
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

func (r *FlowRule) check() error {
	headers := *r
	headers.Type, headers.Priority, headers.Share = 0, 0, false
	switch {
	case r.Type > FlowSniffer:
		return fmt.Errorf("type %d", r.Type)
	case r.Type != FlowMatching && (r.Share || headers.some()):
		return fmt.Errorf("only a rule of type FlowMatching has headers, or shares")
	case len(r.DstMAC)%6 != 0 || len(r.SrcMAC)%6 != 0 || len(r.DstMAC) > 6 || len(r.SrcMAC) > 6:
		return fmt.Errorf("an Ethernet address has 6 bytes")
	case r.VLAN != nil && *r.VLAN > vlanBits:
		return fmt.Errorf("VLAN %d", *r.VLAN)
	case r.Dst.IsValid() && r.Src.IsValid() && r.Dst.Addr().Is4() != r.Src.Addr().Is4():
		return fmt.Errorf("%v and %v are of different versions of IP", r.Dst, r.Src)
	case r.Dst.Addr().Is4In6() || r.Src.Addr().Is4In6():
		return fmt.Errorf("an IPv4 address in IPv6 stands in no packet")
	case r.Protocol != 0 && r.Protocol != FlowTCP && r.Protocol != FlowUDP:
		return fmt.Errorf("protocol %#x", uint32(r.Protocol))
	case r.Protocol == 0 && (r.DstPort != 0 || r.SrcPort != 0):
		return fmt.Errorf("ports of no protocol")
	case r.Protocol != 0 && !r.Dst.IsValid() && !r.Src.IsValid() && r.EtherType == 0:
		return fmt.Errorf("ports without a version of IP: give a prefix, such as 0.0.0.0/0, or the EtherType")
	}
	return nil
}

// some reports whether the rule names any header.
func (r *FlowRule) some() bool {
	return r.DstMAC != nil || r.SrcMAC != nil || r.EtherType != 0 || r.VLAN != nil ||
		r.Dst.IsValid() || r.Src.IsValid() || r.Protocol != 0 || r.DstPort != 0 || r.SrcPort != 0
}

// flowPrefix is a prefix as address and mask, at the start of the arrays.
func flowPrefix(p netip.Prefix) (addr, mask [16]byte) {
	if !p.IsValid() {
		return addr, mask
	}
	copy(addr[:], p.Masked().Addr().AsSlice())
	copy(mask[:], net.CIDRMask(p.Bits(), p.Addr().BitLen()))
	return addr, mask
}
