package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// QPType is the transport of a queue pair (enum ibv_qp_type).
type QPType uint32

const (
	RC QPType = 2 // IBV_QPT_RC: reliable connection
	UC QPType = 3 // IBV_QPT_UC: unreliable connection: SEND and WRITE only
	UD QPType = 4 // IBV_QPT_UD: unreliable datagram: SEND only, up to one MTU
	// RawPacket sends and receives whole Ethernet frames; it needs CAP_NET_RAW. It has run on
	// no device.
	RawPacket QPType = 8 // IBV_QPT_RAW_PACKET

	// Kinds that only one provider has; libibverbs knows them as
	// IBV_QPT_DRIVER.
	DCI QPType = 0x101 // MLX5DV_DCTYPE_DCI: mlx5: initiator of the dynamically connected transport
	DCT QPType = 0x102 // MLX5DV_DCTYPE_DCT: mlx5: target of it; it only receives
	SRD QPType = 0x103 // EFADV_QP_DRIVER_TYPE_SRD: EFA: scalable reliable datagram
)

// unconnected reports whether each request names its destination, remote memory
// included: see [Batch.SetTarget].
func (t QPType) unconnected() bool { return t == DCI || t == SRD }

func (t QPType) String() string {
	return enumString(t, map[QPType]string{RC: "RC", UC: "UC", UD: "UD", RawPacket: "raw packet", DCI: "DCI", DCT: "DCT", SRD: "SRD"})
}

// DefaultQKey is the queue key of UD queue pairs that set none. It keeps
// other programs' datagrams out by accident only; it is no secret.
const DefaultQKey = 0x11111111

// QPConfig configures a queue pair.
type QPConfig struct {
	Type   QPType // 0 means RC
	SendCQ *CQ
	RecvCQ *CQ // nil means SendCQ
	// SRQ is a shared receive queue from which receives are taken. A DCT needs one.
	SRQ *SRQ

	MaxSendWR  int // outstanding sends; 0 means 128
	MaxRecvWR  int // outstanding receives; 0 means 128
	MaxSendSGE int // scatter/gather entries of a send; 0 means 1
	MaxRecvSGE int // the same of a receive; 0 means 1
	MaxInline  int // bytes that [Batch.SendInline] carries at least; 0 asks for none, and devices grant more (16 on rxe)

	// SignalAll makes every send complete visibly, with [Signaled] or without.
	// An [SRD] queue pair does so in any case.
	SignalAll bool

	// GID is the local address; its port is the queue pair's. The zero value
	// means what an empty [GIDQuery] finds.
	GID GIDEntry
	// PKeyIndex is the partition; 0 is the default partition.
	PKeyIndex uint16
	// Access is what the connected peer may do; 0 means whatever the memory
	// regions allow, LocalWrite alone means nothing.
	Access Access
	// QKey is for UD; 0 means [DefaultQKey].
	QKey uint32
	// Extended posts by the ibv_wr_* calls instead of ibv_post_send: a batch
	// is posted whole or not at all. Ops and the driver's kinds imply it.
	Extended bool
	// Ops are operations beyond the usual ones, which the device must have.
	Ops SendOps
	// DCKey is what initiators must show to reach a [DCT].
	DCKey uint64
	// Streams of a [DCI], a power of two: requests of different streams may overtake each
	// other, and an error flushes one stream only. 0 means that it is one queue. With
	// streams the device's queue is made twice as long as MaxSendWR: requests leave it in
	// any order, and libmlx5 considers only the places before the last completed one
	// free.
	Streams int
	// ErroredStreams is how many of them may be in error before the whole
	// queue pair is, a power of two: at most [Mlx5Features.ErroredStreams],
	// which is 1 on much firmware. 0 means Streams.
	ErroredStreams int
	// ECE offers enhanced connection establishment to the peer of an RC or UC
	// queue pair, if the device has it: see [ECE].
	ECE bool
	// KeepAlive makes an RC queue pair notice a peer that is gone while nothing is under
	// way: so often it sends an empty WRITE, which the peer's program does not see, and
	// when the transport's retries are used up, [QP.Err] matches [ErrUnreachable]. The
	// peer's queue pair must allow [RemoteWrite]. The send queue and SendCQ are made longer
	// by one place for that; where SendCQ has extended completions or cannot be made
	// longer, there is no keep-alive. 0 means none, except in links and streams, where it
	// means [DefaultKeepAlive]; negative means none there too.
	KeepAlive time.Duration
	// KeepReset leaves the queue pair in [StateReset]. Otherwise it is made in
	// [StateInit], where receives can be posted at once.
	KeepReset bool
}

// QP is a queue pair. All its methods are safe for concurrent use; the batches
// made from it are not.
type QP struct {
	life   life.Life
	pd     *PD
	qp     cgo.QP
	num    uint32
	typ    QPType
	cap    cgo.QPCap
	gid    GIDEntry
	psn    uint32
	qkey   atomic.Uint32 // as last set by this program
	access Access
	pkey   uint16
	sigAll bool
	sendCQ *CQ
	recvCQ *CQ
	srq    *SRQ
	ops    SendOps
	path   cgo.PostPath
	offer  ECE // to a peer; zero for none

	modify    sync.Mutex    // one state transition at a time
	state     atomic.Uint32 // as last set by this program; the device may be in error already
	terminal  terminalState
	requester atomic.Pointer[Requester] // that posts its sends
	receiver  atomic.Pointer[Receiver]  // that posts its receives
	peer      atomic.Pointer[string]    // the connected peer, for errors
	keep      *keepAlive                // nil: none
	owner     string                    // that posts its sends instead of a requester, or empty; under modify
}

// CreateQP makes a queue pair.
func (p *PD) CreateQP(cfg QPConfig) (*QP, error) {
	q, err := newQP(p, cfg)
	if err != nil {
		return nil, err
	}
	parents := []*life.Life{&p.life, &q.sendCQ.life, &q.recvCQ.life}
	if q.srq != nil {
		parents = append(parents, &q.srq.life)
		if err := q.recvCQ.share(); err != nil {
			return nil, err
		}
	}
	if err := q.life.Attach("qp", "new qp", parents...); err != nil {
		q.unshare()
		return nil, err
	}
	undo := func() {
		q.freeKeepAlive()
		q.unshare()
		q.life.Detach("qp")
	}
	err = q.prepareKeepAlive(cfg.KeepAlive)
	var init cgo.QPInit
	if err == nil {
		init, err = q.init(cfg)
	}
	if err != nil {
		undo()
		return nil, err
	}
	q.qp, q.num, q.path, err = cgo.CreateQP(p.dev.ctx, p.pd, &init)
	if err != nil {
		undo()
		if init.Extended || init.Driver != cgo.NoDriver {
			return nil, opError("create qp on", p.dev.name, unsupported(err), q.typ, " with ", q.ops)
		}
		return nil, createQPError(p.dev, &q.cap, err)
	}
	q.cap = init.Cap
	if init.LogStreams > 0 {
		q.cap.MaxSendWR /= 2
	}
	if q.keep != nil {
		q.cap.MaxSendWR-- // the keep-alive's
	}
	q.life.Label = fmt.Sprintf("qp %#x", q.num)
	watchEvents(p.dev.async, p.dev.async.qps, uint64(q.qp), q)
	q.sendCQ.addSender(q)
	if cfg.ECE {
		if err := q.offerECE(); err != nil {
			return nil, errors.Join(err, q.Close())
		}
	}
	if !cfg.KeepReset {
		if err := q.Init(); err != nil {
			return nil, errors.Join(err, q.Close())
		}
	}
	return q, nil
}

// newQP fills in defaults and checks what the device could not explain.
func newQP(p *PD, cfg QPConfig) (*QP, error) {
	refuse := func(detail ...any) (*QP, error) {
		return nil, opError("create qp on", p.dev.name, ErrAttributes, detail...)
	}
	if cfg.SendCQ == nil {
		return refuse("SendCQ is missing")
	}
	if cfg.RecvCQ == nil {
		cfg.RecvCQ = cfg.SendCQ
	}
	if cfg.SendCQ.dev != p.dev || cfg.RecvCQ.dev != p.dev {
		return refuse("completion queue of another device")
	}
	if cfg.Type == 0 {
		cfg.Type = RC
	}
	if _, ok := rules[cfg.Type]; !ok {
		return refuse("type ", cfg.Type)
	}
	if cfg.ECE && cfg.Type != RC && cfg.Type != UC {
		return refuse("ECE of ", cfg.Type, ", which has no connection")
	}
	if cfg.SRQ != nil && cfg.SRQ.pd.dev != p.dev {
		return refuse("shared receive queue of another device")
	}
	for _, v := range []int{cfg.MaxSendWR, cfg.MaxRecvWR, cfg.MaxSendSGE, cfg.MaxRecvSGE, cfg.MaxInline} {
		if v < 0 {
			return refuse("negative capacity ", v)
		}
	}
	orDefault := func(v, def int) uint32 {
		if v == 0 {
			v = def
		}
		return uint32(v)
	}
	q := &QP{
		pd: p, typ: cfg.Type, sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ,
		srq: cfg.SRQ, ops: cfg.Ops,
		gid: cfg.GID, pkey: cfg.PKeyIndex, access: cfg.Access, sigAll: cfg.SignalAll || cfg.Type == SRD,
		cap: cgo.QPCap{
			MaxSendWR: orDefault(cfg.MaxSendWR, 128), MaxRecvWR: orDefault(cfg.MaxRecvWR, 128),
			MaxSendSGE: orDefault(cfg.MaxSendSGE, 1), MaxRecvSGE: orDefault(cfg.MaxRecvSGE, 1),
			MaxInlineData: uint32(cfg.MaxInline),
		},
	}
	if q.gid == (GIDEntry{}) {
		gid, err := p.dev.FindGID(GIDQuery{})
		if err != nil {
			return nil, err
		}
		q.gid = gid
	}
	q.qkey.Store(cmp.Or(cfg.QKey, DefaultQKey))
	if q.access == 0 {
		q.access = LocalWrite | RemoteRead | RemoteWrite
		if p.dev.attr.Atomic != AtomicNone && (q.typ == RC || q.typ == DCT) {
			q.access |= RemoteAtomic
		}
		if q.typ == UC {
			q.access &^= RemoteRead
		}
	}
	q.psn = rand.Uint32() & 0xffffff // so that packets of an earlier connection do not fit
	return q, nil
}

func createQPError(d *Device, c *cgo.QPCap, err error) error {
	a := d.attr
	detail := fmt.Sprintf("asked for %d+%d work requests, %d+%d entries each, %d bytes inline; the device allows %d and %d",
		c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData, a.MaxQPWR, a.MaxSGE)
	if isErrno(err, syscall.EINVAL) {
		err = class(ErrAttributes, err)
	}
	return opError("create qp on", d.name, unsupported(err), detail)
}

// Close destroys the queue pair. Work requests that are outstanding get no
// completion: bring the queue pair to [StateError] and poll the flushed ones
// first if they matter. Closing twice is not an error.
func (q *QP) Close() error {
	return q.life.Close("qp", nil, func() error {
		async := q.pd.dev.async
		return unwatching(async, async.qps, uint64(q.qp), func() error {
			if err := q.pd.dev.destroyed(cgo.DestroyQP(q.qp)); err != nil {
				return err
			}
			q.sendCQ.removeSender(q)
			q.freeKeepAlive()
			cgo.FreePostPath(q.path)
			q.unshare()
			q.terminate(opError("use", q.named(), ErrClosed))
			return nil
		})
	})
}

// Num is the queue pair number. A [DCT] has one only after [QP.Activate].
func (q *QP) Num() uint32 { return q.num }

// Type is the transport of the queue pair.
func (q *QP) Type() QPType { return q.typ }

// GID is the local address of the queue pair.
func (q *QP) GID() GIDEntry { return q.gid }

// MaxSendWR is how many sends may be outstanding, as the device granted it.
func (q *QP) MaxSendWR() int { return int(q.cap.MaxSendWR) }

// MaxSendSGE is how many scatter/gather entries a send may have.
func (q *QP) MaxSendSGE() int { return int(q.cap.MaxSendSGE) }

func (q *QP) signalsAll() bool { return q.sigAll }

// MaxRecvWR is how many receives may be outstanding, as the device granted it.
func (q *QP) MaxRecvWR() int { return int(q.cap.MaxRecvWR) }

// PD is the protection domain that the queue pair was made in; nil if other
// code made it.
func (q *QP) PD() *PD { return q.pd }

// SendCQ is where its sends complete.
func (q *QP) SendCQ() *CQ { return q.sendCQ }

// RecvCQ is where its receives complete.
func (q *QP) RecvCQ() *CQ { return q.recvCQ }

// MaxInline is how many bytes a send can carry inline.
func (q *QP) MaxInline() int { return int(q.cap.MaxInlineData) }
