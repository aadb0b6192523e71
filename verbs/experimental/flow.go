package experimental

import (
	"io"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/flow"
)

// FlowType says which packets a rule is for (enum ibv_flow_attr_type).
type FlowType = flow.Type

const (
	FlowMatching = flow.Matching // IBV_FLOW_ATTR_NORMAL: those that the rule's headers fit
	FlowDefault  = flow.Default  // IBV_FLOW_ATTR_ALL_DEFAULT: those that no other rule fits
	FlowSniffer  = flow.Sniffer  // IBV_FLOW_ATTR_SNIFFER: copies of all packets of the port
)

// FlowProtocol is a transport with ports (enum ibv_flow_spec_type).
type FlowProtocol = flow.Protocol

const (
	FlowTCP = flow.TCP // IBV_FLOW_SPEC_TCP
	FlowUDP = flow.UDP // IBV_FLOW_SPEC_UDP
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

// CreateFlow makes a queue pair receive the packets of its port that fit a rule.
// A raw packet queue pair receives nothing without one; a UD queue pair can
// have rules too. The process needs CAP_NET_RAW. The rule is in force until it is closed,
// which comes before that of the queue pair. [verbs.ErrUnsupported] says that the
// device steers no flows, [verbs.ErrAttributes] that it cannot do this one. Safe for
// concurrent use.
func CreateFlow(q *verbs.QP, r FlowRule) (io.Closer, error) { return createFlow(q, flow.Rule(r)) }
