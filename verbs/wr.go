package verbs

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/cgo"
)

// SendFlags modify a send work request (enum ibv_send_flags).
type SendFlags uint32

const (
	// Fence starts the request only after all earlier READs and atomics of the
	// queue pair have completed.
	Fence SendFlags = 1 << iota // IBV_SEND_FENCE
	// Signaled asks for a completion. A request without it completes silently
	// on success; its resources are free once a later signaled one completes,
	// so at least one request in each queue's worth must be signaled.
	Signaled // IBV_SEND_SIGNALED
	// Solicited wakes a peer that waits with [CQConfig.SolicitedOnly].
	Solicited // IBV_SEND_SOLICITED
	// Inline copies the data while posting: the local memory is the program's
	// again when Post returns, and needs no registration.
	Inline // IBV_SEND_INLINE
)

func (f SendFlags) String() string {
	s := ""
	for i, name := range []string{"Fence", "Signaled", "Solicited", "Inline"} {
		if f&(1<<i) != 0 {
			s += "|" + name
		}
	}
	if rest := f >> 4; rest != 0 {
		s += fmt.Sprintf("|%#x", uint32(rest<<4))
	}
	return strings.TrimPrefix(s, "|")
}

// Send opcodes (enum ibv_wr_opcode).
const (
	opWrite    = 0
	opWriteImm = 1
	opSend     = 2
	opSendImm  = 3
	opRead     = 4
	opCmpSwap  = 5
	opFetchAdd = 6
	opLocalInv = 7
	opBindMW   = 8
	opSendInv  = 9
)

// opcodeNames is for the refusal of a request that its queue pair was not made for.
var opcodeNames = map[uint32]string{opWrite: "WRITE", opWriteImm: "WRITE with immediate", opSend: "SEND", opSendImm: "SEND with immediate", opRead: "READ",
	opCmpSwap: "CMP_SWAP", opFetchAdd: "FETCH_ADD", opLocalInv: "LOCAL_INV", opBindMW: "BIND_MW", opSendInv: "SEND_WITH_INV",
	cgo.WRFlush: "FLUSH", cgo.WRAtomicWrite: "ATOMIC_WRITE", cgo.WRRaw: "a raw work queue entry"}

// WROp is the operation of a work request (enum ibv_wr_opcode).
type WROp uint32

const (
	WRWrite    WROp = 1 + iota // IBV_WR_RDMA_WRITE: Local, or Data, to Remote
	WRWriteImm                 // IBV_WR_RDMA_WRITE_WITH_IMM: the same, and Imm into a receive of the peer
	WRSend                     // IBV_WR_SEND: Local, or Data, into a receive of the peer
	WRSendImm                  // IBV_WR_SEND_WITH_IMM: the same with Imm
	WRRead                     // IBV_WR_RDMA_READ: Remote to Local
	WRCmpSwap                  // IBV_WR_ATOMIC_CMP_AND_SWP: see [Batch.CmpSwap]
	WRFetchAdd                 // IBV_WR_ATOMIC_FETCH_AND_ADD: see [Batch.FetchAdd]
	// WRLocalInvalidate ends a key of this side, Remote.RKey: that of a type 2 window, or of a
	// region. Requests of peers that use it fail from then on.
	WRLocalInvalidate // IBV_WR_LOCAL_INV
	WRBindWindow      // IBV_WR_BIND_MW: see [WindowBinding]
	// WRSendInvalidate is a SEND that ends a key of the peer, Remote.RKey, to which
	// [WC.Invalidated] returns it.
	WRSendInvalidate // IBV_WR_SEND_WITH_INV
	// WRAtomicWrite writes Value, 8 bytes in host byte order, to Remote. Peers see it whole and
	// after all earlier WRITEs of the queue pair, which must be made with [OpAtomicWrite].
	WRAtomicWrite // IBV_WR_ATOMIC_WRITE

	// Masked atomics on an aligned word of 8 bytes, as [MaskedCmpSwap] and [MaskedFetchAdd]
	// describe them. The old value goes to Local, in host byte order. If Local has 4 bytes, the
	// word has 4, and the old value is big endian. The queue pair must be RC or DCI and made with
	// [OpMasked], which only mlx5 has; [NewMasked] works everywhere.
	WRMaskedCmpSwap  // compares the bits of CompareMask with Compare, stores those of Mask of Value
	WRMaskedFetchAdd // adds Value; Mask is the boundary
)

// String returns the name of the operation in the specification.
func (o WROp) String() string {
	switch o {
	case WRAtomicWrite:
		return opcodeNames[cgo.WRAtomicWrite]
	case WRMaskedCmpSwap:
		return "masked CMP_SWAP"
	case WRMaskedFetchAdd:
		return "masked FETCH_ADD"
	}
	if name, ok := opcodeNames[o.code()]; ok {
		return name
	}
	return "no operation"
}

// code returns the opcode up to that of [WRSendInvalidate].
func (o WROp) code() uint32 { return uint32(o) - 1 }

// WR is a send work request. An operation uses the fields that its comment names.
type WR struct {
	ID    uint64
	Op    WROp
	Flags SendFlags
	Imm   uint32 // in host byte order
	// Local is the memory that is gathered from or scattered to. For an atomic it is one piece,
	// of 8 bytes.
	Local []SGE
	// Data, unless it is empty, is sent instead of Local. It is copied when the request is
	// added, and has at most [QP.MaxInline] bytes.
	Data []byte

	Remote            Remote
	Value, Compare    uint64 // of atomics
	Mask, CompareMask uint64 // of masked atomics

	To   *Destination   // of a datagram
	Bind *WindowBinding // of [WRBindWindow]
}

// ReadWR returns a READ of a peer's memory, scattered over local memory.
func ReadWR(from Remote, into ...SGE) WR { return WR{Op: WRRead, Remote: from, Local: into} }

// WriteWR returns a WRITE of the gathered local memory to a peer's.
func WriteWR(to Remote, from ...SGE) WR { return WR{Op: WRWrite, Remote: to, Local: from} }

// SendWR returns a SEND of the gathered local memory.
func SendWR(data ...SGE) WR { return WR{Op: WRSend, Local: data} }

// SendImmWR returns a SEND with an immediate.
func SendImmWR(imm uint32, data ...SGE) WR { return WR{Op: WRSendImm, Imm: imm, Local: data} }

// Destination is where a datagram goes: a queue pair behind an address handle.
type Destination struct {
	AH   *AH
	QPN  uint32
	QKey uint32
}

// to returns the destination of a datagram, without an address handle if there is none.
func (w *WR) to() Destination {
	if w.To == nil {
		return Destination{}
	}
	return *w.To
}

// result returns the memory for the old value of an atomic, or memory that is refused.
func (w *WR) result() SGE {
	if len(w.Local) == 1 {
		return w.Local[0]
	}
	return SGE{}
}
