package verbs

import (
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
)

// AHAttr is an address vector: the way to a port.
type AHAttr struct {
	GID          GID    // of the destination; zero for InfiniBand within a subnet
	SGIDIndex    uint8  // index of the local GID
	Port         uint8  // local port
	HopLimit     uint8  // 0 is sent as 64 when there is a GID
	TrafficClass uint8  // DSCP and ECN bits on RoCE v2
	FlowLabel    uint32 // 20 bits; on RoCE v2 devices choose the UDP source port by it
	DLID         uint16 // InfiniBand only
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	// Global adds a route header though GID is zero, as for the address vector
	// of a [DCT], which names no peer. With a GID it is implied.
	Global bool
}

func (a *AHAttr) raw() cgo.AHAttr {
	r := cgo.AHAttr{DLID: a.DLID, SL: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate, PortNum: a.Port}
	if a.Global || a.GID != (GID{}) {
		r.IsGlobal = 1
		r.GRH = cgo.GlobalRoute{DGID: a.GID, FlowLabel: a.FlowLabel, SGIDIndex: a.SGIDIndex,
			HopLimit: a.HopLimit, TrafficClass: a.TrafficClass}
		if r.GRH.HopLimit == 0 {
			r.GRH.HopLimit = 64
		}
	}
	return r
}

func ahFromRaw(r *cgo.AHAttr) AHAttr {
	return AHAttr{GID: r.GRH.DGID, SGIDIndex: r.GRH.SGIDIndex, Port: r.PortNum, HopLimit: r.GRH.HopLimit,
		TrafficClass: r.GRH.TrafficClass, FlowLabel: r.GRH.FlowLabel, DLID: r.DLID, SL: r.SL,
		SrcPathBits: r.SrcPathBits, StaticRate: r.StaticRate, Global: r.IsGlobal != 0}
}

// AH is an address handle: where a datagram goes. It must stay open until the
// sends that use it have completed.
type AH struct {
	life life
	ah   cgo.AH

	once sync.Once // for raw work queue entries
	av   [48]byte
	err  error
}

// CreateAH makes an address handle. On Ethernet this resolves the neighbour,
// and may take as long as ARP does.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	a := &AH{}
	if err := a.life.born("ah", label("ah"), &p.life); err != nil {
		return nil, err
	}
	raw := attr.raw()
	ah, err := cgo.CreateAH(p.pd, &raw)
	if err != nil {
		p.life.release("ah")
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return nil, opError("create ah in", p.life.label, err, "to GID ", attr.GID, " from GID index ", attr.SGIDIndex)
	}
	a.ah = ah
	return a, nil
}

// Close destroys the handle. Closing twice is not an error.
func (a *AH) Close() error {
	return a.life.close("ah", nil, func() error { return cgo.DestroyAH(a.ah) })
}

// vector asks mlx5 once for what stands for the handle in a work queue entry.
func (a *AH) vector() error {
	a.once.Do(func() {
		a.err = a.life.with("look into", func() (err error) {
			a.av, err = cgo.Mlx5AV(a.ah)
			return unsupported(err)
		})
	})
	return a.err
}
