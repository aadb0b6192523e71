package verbs

import (
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// AHAttr is an address vector: the way to a port.
type AHAttr struct {
	GID          GID    // of the destination; zero for InfiniBand within a subnet
	SGIDIndex    uint8  // index of the local GID
	Port         uint8  // local port
	HopLimit     uint8  // 0 is sent as 64 when there is a GID
	TrafficClass uint8  // DSCP and ECN bits on RoCE v2
	FlowLabel    uint32 // 20 bits; on RoCE v2 devices choose the UDP source port by it: [FlowLabelFor]
	DLID         uint16 // InfiniBand only
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	// Global adds a route header even if GID is zero, as for the address vector of a
	// [DCT], which names no peer. A GID implies it.
	Global bool
}

func (a *AHAttr) raw() (r cgo.AHAttr) {
	a.fill(&r)
	return r
}

// fill is raw into attributes that are zero.
func (a *AHAttr) fill(r *cgo.AHAttr) {
	r.DLID, r.SL, r.SrcPathBits, r.StaticRate, r.PortNum = a.DLID, a.SL, a.SrcPathBits, a.StaticRate, a.Port
	if a.Global || a.GID != (GID{}) {
		r.IsGlobal = 1
		r.GRH = cgo.GlobalRoute{DGID: a.GID, FlowLabel: a.FlowLabel, SGIDIndex: a.SGIDIndex,
			HopLimit: a.HopLimit, TrafficClass: a.TrafficClass}
		if r.GRH.HopLimit == 0 {
			r.GRH.HopLimit = 64
		}
	}
}

func ahFromRaw(r *cgo.AHAttr) AHAttr {
	return AHAttr{GID: r.GRH.DGID, SGIDIndex: r.GRH.SGIDIndex, Port: r.PortNum, HopLimit: r.GRH.HopLimit,
		TrafficClass: r.GRH.TrafficClass, FlowLabel: r.GRH.FlowLabel, DLID: r.DLID, SL: r.SL,
		SrcPathBits: r.SrcPathBits, StaticRate: r.StaticRate, Global: r.IsGlobal != 0}
}

// AH is an address handle: where a datagram goes. It must stay open until the
// sends that use it have completed.
type AH struct {
	life life.Life
	pd   *PD
	ah   cgo.AH

	once sync.Once // for raw work queue entries
	av   [48]byte
	err  error
}

// CreateAH makes an address handle. On Ethernet this resolves the neighbour,
// and may take as long as ARP does.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	raw := attr.raw()
	return p.createAH("create ah in", &raw)
}

func (p *PD) createAH(op string, raw *cgo.AHAttr) (*AH, error) {
	a := &AH{pd: p}
	if err := a.life.Attach("ah", life.Label("ah"), &p.life); err != nil {
		return nil, err
	}
	ah, err := cgo.CreateAH(p.pd, raw)
	if err != nil {
		a.life.Detach("ah")
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return nil, opError(op, p.life.Label, err, "to GID ", GID(raw.GRH.DGID), ", LID ", raw.DLID, " from GID index ", raw.GRH.SGIDIndex)
	}
	a.ah = ah
	return a, nil
}

// GRHSize is how many bytes precede the message of a datagram in the memory of
// its receive.
const GRHSize = cgo.GRHSize

// CreateAHFromWC makes the way back to the sender of a datagram: grh are the first
// [GRHSize] bytes of its receive, which [WC.HasGRH] says are filled in, and port is the
// port of the queue pair. A reply goes there, to [WC.SrcQP], with the Q_Key of the
// service, so a server need not know its clients.
//
// Do not trust what a packet says of its sender more than its network. On Ethernet the
// call resolves the neighbour and may take as long as ARP does: keep the handles of
// repeated senders, but limit their number.
//
// On EFA, where datagrams have no route header, the error is [ErrUnsupported]: use
// experimental.CreateAHFromWCEx.
func (p *PD) CreateAHFromWC(wc *WC, grh []byte, port uint8) (*AH, error) {
	const op = "create ah from completion in"
	if err := p.life.Open(op); err != nil {
		return nil, err
	}
	attr, err := p.wayBack(op, wc, grh, port)
	if err != nil {
		return nil, err
	}
	return p.createAH(op, &attr)
}

// createAHFromWCEx is [experimental.CreateAHFromWCEx].
func (p *PD) createAHFromWCEx(wc *WCEx, grh []byte, port uint8) (*AH, error) {
	if wc == nil {
		return p.CreateAHFromWC(nil, grh, port)
	}
	if wc.sender == (GID{}) || wc.HasGRH() {
		return p.CreateAHFromWC(&wc.WC, grh, port)
	}
	return p.CreateAH(AHAttr{GID: wc.sender, Port: port}) // EFA has one GID, at index 0
}

// number is [experimental.AHNumber].
func (a *AH) number() (uint16, error) {
	const op = "query number of"
	var n uint16
	return n, a.life.With(op, func() (err error) {
		if _, err := a.pd.dev.EFA(); err != nil {
			return opError(op, a.life.Label, ErrUnsupported, "only EFA numbers address handles")
		}
		n, err = cgo.EFAAHNumber(a.ah)
		return opError(op, a.life.Label, unsupported(err))
	})
}

func (p *PD) wayBack(op string, wc *WC, grh []byte, port uint8) (cgo.AHAttr, error) {
	var header [GRHSize]byte
	var attr cgo.AHAttr
	refuse := func(detail ...any) (cgo.AHAttr, error) {
		return attr, opError(op, p.life.Label, ErrAttributes, detail...)
	}
	switch {
	case wc == nil || wc.Status() != WCSuccess || wc.Opcode() != WCRecv:
		return refuse("not the completion of a datagram that was received")
	case wc.HasGRH() && len(grh) < GRHSize:
		return refuse(len(grh), " bytes of route header; it has ", GRHSize)
	}
	copy(header[:], grh)
	return attr, p.life.With(op, func() error {
		if _, err := p.dev.EFA(); err == nil && !wc.HasGRH() {
			return opError(op, p.life.Label, ErrUnsupported, "datagrams of EFA name senders without a handle to queues with FieldSender only, and others by the number of their handle: experimental.CreateAHFromWCEx, AHNumber")
		}
		err := cgo.InitAHFromWC(p.dev.ctx, port, &wc.wc, &header, &attr)
		if isErrno(err, syscall.EINVAL) || isErrno(err, syscall.ENOENT) {
			err = class(ErrAttributes, err)
		}
		return opError(op, p.life.Label, err, "port ", port, ", from queue pair ", wc.SrcQP(), ": is the local address still there?")
	})
}

// Close destroys the handle. Closing twice is not an error.
func (a *AH) Close() error {
	return a.life.Close("ah", nil, func() error { return a.pd.dev.destroyed(cgo.DestroyAH(a.ah)) })
}

// vector asks mlx5 once for what stands for the handle in a work queue entry.
func (a *AH) vector() error {
	a.once.Do(func() {
		a.err = a.life.With("look into", func() (err error) {
			a.av, err = cgo.Mlx5AV(a.ah)
			return unsupported(err)
		})
	})
	return a.err
}
