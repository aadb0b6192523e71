package verbs

import (
	"github.com/goverbs/goverbs/cgo"
)

// WCStatus is how a work request ended (enum ibv_wc_status; InfiniBand
// specification, volume 1, section 11.6.2). Each status is an error value, so
// that errors.Is(err, verbs.WCRetryExceeded) works.
type WCStatus uint32

const (
	WCSuccess           WCStatus = iota // IBV_WC_SUCCESS
	WCLocalLength                       // IBV_WC_LOC_LEN_ERR: a message did not fit the local buffer, or exceeded the device's limit
	WCLocalQPOperation                  // IBV_WC_LOC_QP_OP_ERR: the device could not carry out the request
	wcLocalEEC                          // IBV_WC_LOC_EEC_OP_ERR
	WCLocalProtection                   // IBV_WC_LOC_PROT_ERR: a local key, range or access right was wrong
	WCFlushed                           // IBV_WC_WR_FLUSH_ERR: the queue pair was in error when the request's turn came
	WCMWBind                            // IBV_WC_MW_BIND_ERR: a memory window could not be bound
	WCBadResponse                       // IBV_WC_BAD_RESP_ERR: the responder sent an unexpected opcode
	WCLocalAccess                       // IBV_WC_LOC_ACCESS_ERR: a WRITE with immediate or a READ response found the local memory protected
	WCRemoteInvalid                     // IBV_WC_REM_INV_REQ_ERR: the responder refused the request as malformed: too long, or not supported
	WCRemoteAccess                      // IBV_WC_REM_ACCESS_ERR: wrong rkey, range or access right at the responder
	WCRemoteOperation                   // IBV_WC_REM_OP_ERR: the responder could not complete the request
	WCRetryExceeded                     // IBV_WC_RETRY_EXC_ERR: no response after all retries: the peer is dead or unreachable
	WCRNRRetryExceeded                  // IBV_WC_RNR_RETRY_EXC_ERR: the responder had no receive posted for too long
	wcLocalRDDViolation                 // IBV_WC_LOC_RDD_VIOL_ERR
	WCRemoteInvalidRD                   // IBV_WC_REM_INV_RD_REQ_ERR
	WCRemoteAborted                     // IBV_WC_REM_ABORT_ERR
	wcInvalidEECN                       // IBV_WC_INV_EECN_ERR
	wcInvalidEECState                   // IBV_WC_INV_EEC_STATE_ERR
	WCFatal                             // IBV_WC_FATAL_ERR: the device failed
	WCResponseTimeout                   // IBV_WC_RESP_TIMEOUT_ERR
	WCGeneral                           // IBV_WC_GENERAL_ERR
)

// WCOpcode is what kind of work a completion reports (enum ibv_wc_opcode).
type WCOpcode uint32

const (
	WCSend            WCOpcode = 0   // IBV_WC_SEND
	WCWrite           WCOpcode = 1   // IBV_WC_RDMA_WRITE
	WCRead            WCOpcode = 2   // IBV_WC_RDMA_READ
	WCCmpSwap         WCOpcode = 3   // IBV_WC_COMP_SWAP
	WCFetchAdd        WCOpcode = 4   // IBV_WC_FETCH_ADD
	WCBindMW          WCOpcode = 5   // IBV_WC_BIND_MW
	WCLocalInv        WCOpcode = 6   // IBV_WC_LOCAL_INV
	WCFlush           WCOpcode = 8   // IBV_WC_FLUSH
	WCAtomWrite       WCOpcode = 9   // IBV_WC_ATOMIC_WRITE
	WCRecv            WCOpcode = 128 // IBV_WC_RECV
	WCRecvRDMAWithImm WCOpcode = 129 // IBV_WC_RECV_RDMA_WITH_IMM: receive consumed by a WRITE with immediate
	WCRaw             WCOpcode = 136 // a raw work queue entry of mlx5 (IBV_WC_DRIVER2)
	wcFlagGRH                  = 1 << 0
	wcFlagImm                  = 1 << 1
	wcFlagInv                  = 1 << 3
)

func (o WCOpcode) String() string {
	return enumString(o, map[WCOpcode]string{WCSend: "SEND", WCWrite: "WRITE", WCRead: "READ",
		WCCmpSwap: "CMP_SWAP", WCFetchAdd: "FETCH_ADD", WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCFlush: "FLUSH", WCAtomWrite: "ATOMIC_WRITE", WCRaw: "raw",
		WCRecv: "RECV", WCRecvRDMAWithImm: "RECV (WRITE with immediate)"})
}

// WC is a work completion. Unless Status is [WCSuccess] only ID, Status,
// VendorErr and QPNum mean anything. It is plain data: copy it, keep it.
type WC struct {
	wc cgo.WC
}

// ID is the number that the work request was posted with.
func (w *WC) ID() uint64 { return w.wc.ID }

// Status returns how the work request ended.
func (w *WC) Status() WCStatus { return WCStatus(w.wc.Status) }

// Opcode is valid on success only.
func (w *WC) Opcode() WCOpcode { return WCOpcode(w.wc.Opcode) }

// Len is the number of bytes received, or read; on UD it counts the 40 bytes
// in front of the message too.
func (w *WC) Len() int { return int(w.wc.ByteLen) }

// QPNum is the number of the local queue pair.
func (w *WC) QPNum() uint32 { return w.wc.QPNum }

// SrcQP is the sender's queue pair number; valid for UD receives.
func (w *WC) SrcQP() uint32 { return w.wc.SrcQP }

// SLID is the sender's local identifier; valid for UD receives on InfiniBand.
func (w *WC) SLID() uint16 { return w.wc.SLID }

// HasGRH reports whether the first 40 bytes of a UD receive hold a global route header
// (RoCE v2 over IPv4: 20 undefined bytes, then the IPv4 header).
func (w *WC) HasGRH() bool { return w.wc.Flags&wcFlagGRH != 0 }

// Imm is the immediate of a receive, in host byte order, if there is one.
func (w *WC) Imm() (uint32, bool) {
	if w.wc.Flags&wcFlagImm == 0 {
		return 0, false
	}
	return bigEndian32(w.wc.ImmData), true
}

// Invalidated returns the key of this side that a received SEND with invalidate has
// invalidated, if it was one. rxe invalidates the key, but reports no flag that
// libibverbs knows, so on rxe ok is always false.
func (w *WC) Invalidated() (rkey uint32, ok bool) {
	if w.wc.Flags&wcFlagInv == 0 {
		return 0, false
	}
	return w.wc.ImmData, true // not an immediate: host byte order
}

// Err is nil on success and a [*WCError] otherwise.
func (w *WC) Err() error {
	if w.wc.Status == uint32(WCSuccess) {
		return nil
	}
	return &WCError{Status: w.Status(), VendorErr: w.wc.VendorErr, QPNum: w.wc.QPNum, ID: w.wc.ID}
}

// WithID is the completion with another number and length, for layers that post a
// request under a number of their own, or as several.
func (w WC) WithID(id uint64, n int) WC {
	w.wc.ID, w.wc.ByteLen = id, uint32(n)
	return w
}

// flushedWC is [driver.FlushedWC].
func flushedWC(id uint64, qpNum uint32) WC {
	return WC{cgo.WC{ID: id, Status: uint32(WCFlushed), QPNum: qpNum}}
}
