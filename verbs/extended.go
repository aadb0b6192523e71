package verbs

import (
	"fmt"
	"math/bits"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
)

// SendOps are operations that a queue pair must be made for (enum
// ibv_qp_create_send_ops_flags).
type SendOps uint64

const (
	OpLocalInvalidate SendOps = 1 << 7  // IBV_QP_EX_WITH_LOCAL_INV
	OpBindWindow      SendOps = 1 << 8  // IBV_QP_EX_WITH_BIND_MW
	OpSendInvalidate  SendOps = 1 << 9  // IBV_QP_EX_WITH_SEND_WITH_INV
	OpAtomicWrite     SendOps = 1 << 12 // IBV_QP_EX_WITH_ATOMIC_WRITE: InfiniBand specification, release 1.6; rdma-core 43
	opFlush           SendOps = 1 << 11 // IBV_QP_EX_WITH_FLUSH: the same; built with the headers of rdma-core 45 or later
	// OpMasked is for masked atomics by raw work queue entries of mlx5.
	OpMasked SendOps = 1 << 62 // and for [Batch.Raw]
)

var opNames = map[SendOps]string{OpLocalInvalidate: "LOCAL_INV", OpBindWindow: "BIND_MW", OpSendInvalidate: "SEND_WITH_INV",
	OpAtomicWrite: "ATOMIC_WRITE", opFlush: "FLUSH", OpMasked: "masked atomics"}

func (o SendOps) String() string {
	if o == 0 {
		return "the usual operations"
	}
	var names []string
	for rest := uint64(o); rest != 0; rest &= rest - 1 {
		op := SendOps(rest & -rest)
		name, ok := opNames[op]
		if !ok {
			name = fmt.Sprintf("operation bit %d", bits.TrailingZeros64(uint64(op)))
		}
		names = append(names, name)
	}
	return strings.Join(names, "|")
}

// usualOps are what every device of a type has (the low bits of the
// enumeration: WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CMP_SWAP, FETCH_ADD).
var usualOps = map[QPType]SendOps{RC: 0x7f, UC: 0x0f, UD: 0x0c, RawPacket: 0x04, DCI: 0x7f}

// init says to package cgo how to make the queue pair.
func (q *QP) init(cfg QPConfig) (cgo.QPInit, error) {
	refuse := func(err error, detail ...any) (cgo.QPInit, error) {
		return cgo.QPInit{}, opError("create qp on", q.pd.dev.name, err, detail...)
	}
	in := cgo.QPInit{Type: uint32(q.typ), SendCQ: q.sendCQ.cq, RecvCQ: q.recvCQ.cq, Cap: q.cap, SigAll: q.sigAll,
		Extended: cfg.Extended || q.ops != 0, SendOps: uint64(usualOps[q.typ] | q.ops&^OpMasked),
		SoftRoCE: q.pd.dev.softRoCE(), SendPath: q.sendCQ.path}
	if q.ops&opFlush != 0 && cgo.FlushOffset() == 0 {
		return refuse(ErrUnsupported, "FLUSH: this program was built with headers older than rdma-core 45")
	}
	if q.srq != nil {
		in.SRQ = q.srq.srq
		in.Cap.MaxRecvWR, in.Cap.MaxRecvSGE = 0, 0
		q.cap.MaxRecvWR = 0
	}
	mlx5 := func(d cgo.Driver) error {
		in.Driver = d
		if !cgo.Mlx5Supported(q.pd.dev.ctx) {
			return ErrUnsupported
		}
		return nil
	}
	switch q.typ {
	case DCI:
		if cfg.Streams != 0 && (cfg.Streams < 2 || cfg.Streams&(cfg.Streams-1) != 0 || cfg.Streams > 1<<15) {
			return refuse(ErrAttributes, cfg.Streams, " streams; a power of two is needed")
		}
		if e := cfg.ErroredStreams; e < 0 || e&(e-1) != 0 || e > cfg.Streams {
			return refuse(ErrAttributes, e, " of ", cfg.Streams, " streams in error; a power of two is needed")
		}
		if cfg.Streams > 0 {
			in.LogStreams = uint8(bits.TrailingZeros(uint(cfg.Streams)))
			in.LogErrored = in.LogStreams
			in.Cap.MaxSendWR *= 2 // see Streams
		}
		if cfg.ErroredStreams > 0 {
			in.LogErrored = uint8(bits.TrailingZeros(uint(cfg.ErroredStreams)))
		}
		q.cap.MaxRecvWR, q.cap.MaxRecvSGE = 0, 0
		if err := mlx5(cgo.Mlx5DCI); err != nil {
			return refuse(err, "the dynamically connected transport is mlx5's")
		}
	case DCT:
		if q.srq == nil {
			return refuse(ErrAttributes, "a DCT needs SRQ")
		}
		in.DCKey = cfg.DCKey
		if err := mlx5(cgo.Mlx5DCT); err != nil {
			return refuse(err, "the dynamically connected transport is mlx5's")
		}
	case SRD:
		if q.srq != nil {
			return refuse(ErrAttributes, "SRD has no shared receive queues")
		}
		a, err := q.pd.dev.EFA()
		if err != nil {
			return refuse(err)
		}
		in.Driver, in.SendOps = cgo.EFASRD, uint64(a.sendOps())
	case RC:
		if q.ops&OpMasked != 0 {
			if err := mlx5(cgo.Mlx5QP); err != nil {
				return refuse(err, "masked atomics are mlx5's; NewMasked emulates them")
			}
		}
	}
	if q.ops&OpMasked != 0 {
		if in.Driver != cgo.Mlx5QP && in.Driver != cgo.Mlx5DCI {
			return refuse(ErrUnsupported, "masked atomics on ", q.typ)
		}
		in.RawWQE = true
		// A 64-bit compare and swap takes twice the room of other requests.
		in.Cap.MaxSendSGE = max(in.Cap.MaxSendSGE, 2)
	}
	return in, nil
}

// unsupportedBy says which of the requests of a batch the extended calls of the
// queue pair lack.
func (b *Batch) unsupportedBy() string {
	callable := cgo.Callable(b.qp.path)
	for i := range b.wrs[:b.n] {
		if op := b.wrs[i].Opcode; callable&cgo.OpOf(op) == 0 {
			return fmt.Sprintf("%s: this %v queue pair was not made for it", opcodeNames[op], b.qp.typ)
		}
	}
	return "by the extended calls of this provider"
}

// unsupported turns the errno by which kernel and providers refuse what they do
// not have into ErrUnsupported, errno included.
func unsupported(err error) error {
	for _, no := range []syscall.Errno{syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.ENOTTY, syscall.EPROTONOSUPPORT, syscall.ENOTSUP} {
		if isErrno(err, no) {
			return class(ErrUnsupported, err)
		}
	}
	return err
}

func (b *Batch) atomicWrite(w *WR) {
	if err := b.wrongAtomicWrite(w.Remote); err != nil {
		b.keep(err)
		return
	}
	if r := b.next(w.ID, cgo.WRAtomicWrite, w.Flags&^Inline, w.Remote, nil); r != nil {
		r.SetAtomic(w.Remote.Addr, 0, w.Value, w.Remote.RKey)
	}
}

func (b *Batch) wrongAtomicWrite(at Remote) error {
	switch {
	case b.qp.ops&OpAtomicWrite == 0:
		return b.addError(ErrUnsupported, "the queue pair was made without OpAtomicWrite")
	case at == badRemote:
		return b.wrong(opWrite, 0, at, nil)
	case at.Addr%8 != 0:
		return b.addError(ErrRange, "an atomic WRITE needs an 8-byte aligned word")
	}
	return nil
}

// How much a FLUSH reaches (enum ibv_selectivity_level).
const (
	flushRange  = 0
	flushRegion = 1
)

// flush is [experimental.Flush].
func (b *Batch) flush(id uint64, flags SendFlags, at Remote, length uint32, what uint8) {
	if b.qp.ops&opFlush == 0 {
		b.fail(ErrUnsupported, "the queue pair was made without OpFlush")
		return
	}
	level := uint64(flushRange)
	if length == 0 {
		level = flushRegion
	}
	if w := b.next(id, cgo.WRFlush, flags&^Inline, at, nil); w != nil {
		w.SetAtomic(at.Addr, uint64(length), uint64(what)|level<<8, at.RKey)
	}
}

// Target is a queue pair that requests of a [DCI] or [SRD] queue pair go to.
type Target struct {
	AH     *AH
	QPN    uint32 // number of the DCT, or of the SRD queue pair
	QKey   uint32 // SRD
	DCKey  uint64 // DC: the access key of the DCT
	Stream int    // DC: stream of the initiator, from 1 on; 0 if it has none
}

// targeted is a target and the first request that goes to it.
type targeted struct {
	from int
	t    Target
}

// SetTarget sets the target of the requests that are added from now on, until the batch
// is posted. It is for queue pairs without a connection, where each request needs a
// target.
func (b *Batch) SetTarget(t Target) {
	switch {
	case !b.qp.typ.unconnected():
		b.fail(ErrAttributes, "a target is for DCI and SRD")
		return
	case t.AH == nil:
		b.fail(ErrAttributes, "a target needs an address handle")
		return
	}
	if b.qp.ops&OpMasked != 0 {
		if err := t.AH.vector(); err != nil {
			b.fail(err, "address vector of ", t.AH.life.Label)
			return
		}
	}
	b.dests = append(b.dests, targeted{b.n, t})
	b.name(&t.AH.life)
}

// address writes the targets into the requests, before they are posted.
func (b *Batch) address() error {
	if len(b.dests) == 0 || b.dests[0].from > 0 {
		return opError("post send to", b.qp.life.Label, ErrAttributes, "a request has no target: call SetTarget first")
	}
	for i, d := range b.dests {
		end := b.n
		if i+1 < len(b.dests) {
			end = b.dests[i+1].from
		}
		for j := d.from; j < end; j++ {
			w := &b.wrs[j]
			if b.qp.typ == SRD {
				if other := SendFlags(w.Flags) &^ (Signaled | Inline); other != 0 {
					return opError("post send to", b.qp.life.Label, ErrUnsupported, "SRD knows no flag ", other)
				}
				w.Flags |= uint32(Signaled) // or EFA takes it for malformed
			}
			w.SetDest(d.t.AH.ah, d.t.QPN, d.t.QKey, d.t.DCKey, uint32(d.t.Stream))
		}
	}
	return nil
}
