package verbs

import (
	"github.com/goverbs/goverbs/cgo"
)

// MTU is a path MTU as the InfiniBand specification encodes it.
type MTU int

const (
	MTU256  MTU = iota + 1 // IBV_MTU_256
	MTU512                 // IBV_MTU_512
	MTU1024                // IBV_MTU_1024
	MTU2048                // IBV_MTU_2048
	MTU4096                // IBV_MTU_4096
)

// Bytes is the payload that one packet carries.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState is the logical state of a port.
type PortState int

const (
	PortNop         PortState = iota // IBV_PORT_NOP
	PortDown                         // IBV_PORT_DOWN
	PortInit                         // IBV_PORT_INIT
	PortArmed                        // IBV_PORT_ARMED
	PortActive                       // IBV_PORT_ACTIVE
	PortActiveDefer                  // IBV_PORT_ACTIVE_DEFER
)

func (s PortState) String() string {
	return enumString(s, map[PortState]string{PortNop: "nop", PortDown: "down", PortInit: "init",
		PortArmed: "armed", PortActive: "active", PortActiveDefer: "active deferred"})
}

// carries reports whether a port in this state carries packets.
func (s PortState) carries() bool { return s == PortActive || s == PortActiveDefer }

// LinkLayer is what carries the packets of a port.
type LinkLayer int

const (
	LinkUnspecified LinkLayer = iota // IBV_LINK_LAYER_UNSPECIFIED
	LinkInfiniBand                   // IBV_LINK_LAYER_INFINIBAND
	LinkEthernet                     // IBV_LINK_LAYER_ETHERNET
)

func (l LinkLayer) String() string {
	return enumString(l, map[LinkLayer]string{LinkUnspecified: "unspecified", LinkInfiniBand: "InfiniBand", LinkEthernet: "Ethernet"})
}

// Port has the properties of a port at the moment of the query.
type Port struct {
	Num        uint8
	State      PortState
	LinkLayer  LinkLayer
	MaxMTU     MTU
	ActiveMTU  MTU
	MaxMsgSize uint32 // bytes
	LID        uint16 // 0 on Ethernet, as are the next four
	LMC        uint8  // the port has 2^LMC local identifiers from LID on
	SMLID      uint16 // where the subnet manager is
	SMSL       uint8  // and the service level to it
	SubnetTime uint8  // longest way through the subnet: 4.096 us * 2^n
	GIDs       int    // size of the GID table, free entries included
	PKeys      int
}

// Port queries a port; ports count from 1.
func (d *Device) Port(num uint8) (Port, error) {
	var a cgo.PortAttr
	err := d.life.With("query port of", func() error {
		return opError("query port of", d.name, cgo.QueryPort(d.ctx, num, &a))
	})
	if err != nil {
		return Port{}, err
	}
	return Port{
		Num:        num,
		State:      PortState(a.State),
		LinkLayer:  LinkLayer(a.LinkLayer),
		MaxMTU:     MTU(a.MaxMTU),
		ActiveMTU:  MTU(a.ActiveMTU),
		MaxMsgSize: a.MaxMsgSize,
		LID:        a.LID,
		LMC:        a.LMC,
		SMLID:      a.SMLID,
		SMSL:       a.SMSL,
		SubnetTime: a.SubnetTimeout,
		GIDs:       int(a.GIDTableLen),
		PKeys:      int(a.PKeyTableLen),
	}, nil
}

// maxMessage returns how many bytes a message of the queue pair has at most. SRD is left
// to the device: what its port says is not for READ and WRITE.
func (q *QP) maxMessage() uint32 {
	if q.pd == nil || q.typ == SRD || q.typ == RawPacket {
		return maxSGELength
	}
	return q.pd.dev.maxMessage(q.gid.Port)
}

// maxMessage returns how many bytes a message has at most on a port. That never changes.
func (d *Device) maxMessage(port uint8) uint32 {
	if known, ok := d.longest.Load(port); ok {
		return known.(uint32)
	}
	p, err := d.Port(port)
	if err != nil || p.MaxMsgSize == 0 { // the post tells
		return maxSGELength
	}
	n := min(p.MaxMsgSize, maxSGELength)
	d.longest.Store(port, n)
	return n
}
