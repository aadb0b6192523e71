package verbs

import (
	"github.com/goverbs/goverbs/cgo"
)

// WCStatus is how a work request ended (enum ibv_wc_status; InfiniBand
// specification, volume 1, section 11.6.2). Each status is an error value, so
// that errors.Is(err, verbs.WCRetryExceeded) works.
type WCStatus uint32

const (
	WCSuccess           WCStatus = iota
	WCLocalLength                // a message did not fit the local buffer, or exceeded the device's limit
	WCLocalQPOperation           // the device could not carry out the request
	WCLocalEEC                   //
	WCLocalProtection            // a local key, range or access right was wrong
	WCFlushed                    // the queue pair was in error when the request's turn came
	WCMWBind                     // a memory window could not be bound
	WCBadResponse                // the responder sent an unexpected opcode
	WCLocalAccess                // a WRITE with immediate or a READ response found the local memory protected
	WCRemoteInvalid              // the responder refused the request as malformed: too long, or not supported
	WCRemoteAccess               // wrong rkey, range or access right at the responder
	WCRemoteOperation            // the responder could not complete the request
	WCRetryExceeded              // no answer after all retries: the peer is dead or unreachable
	WCRNRRetryExceeded           // the responder had no receive posted for too long
	WCLocalRDDViolation          //
	WCRemoteInvalidRD            //
	WCRemoteAborted              //
	WCInvalidEECN                //
	WCInvalidEECState            //
	WCFatal                      // the device failed
	WCResponseTimeout            //
	WCGeneral                    //
)

// WCOpcode is what kind of work a completion reports (enum ibv_wc_opcode).
type WCOpcode uint32

const (
	WCSend      WCOpcode = 0
	WCWrite     WCOpcode = 1
	WCRead      WCOpcode = 2
	WCCmpSwap   WCOpcode = 3
	WCFetchAdd  WCOpcode = 4
	WCBindMW    WCOpcode = 5
	WCLocalInv  WCOpcode = 6
	WCFlush     WCOpcode = 8
	WCAtomWrite WCOpcode = 9
	WCRecv      WCOpcode = 128
	WCRecvWrite WCOpcode = 129 // receive consumed by a WRITE with immediate
	WCRaw       WCOpcode = 136 // a raw work queue entry of mlx5 (IBV_WC_DRIVER2)
	wcFlagGRH            = 1 << 0
	wcFlagImm            = 1 << 1
	wcFlagInv            = 1 << 3
)

func (o WCOpcode) String() string {
	return enumString(o, map[WCOpcode]string{WCSend: "SEND", WCWrite: "WRITE", WCRead: "READ",
		WCCmpSwap: "CMP_SWAP", WCFetchAdd: "FETCH_ADD", WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCFlush: "FLUSH", WCAtomWrite: "ATOMIC_WRITE", WCRaw: "raw",
		WCRecv: "RECV", WCRecvWrite: "RECV (WRITE with immediate)"})
}

// WC is a work completion. Unless Status is [WCSuccess] only ID, Status,
// VendorErr and QPNum mean anything. It is plain data: copy it, keep it.
type WC struct {
	wc cgo.WC
}

// ID is the number that the work request was posted with.
func (w *WC) ID() uint64 { return w.wc.ID }

// Status tells how the work request ended.
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

// SLID, SL and DLIDPathBits are the sender's local identifier, the service level
// of the packet and the low bits of the local identifier that it was sent to;
// valid for UD receives on InfiniBand. [PD.CreateAHFromWC] makes the way back of
// them.
func (w *WC) SLID() uint16        { return w.wc.SLID }
func (w *WC) SL() uint8           { return w.wc.SL }
func (w *WC) DLIDPathBits() uint8 { return w.wc.DLIDPathBits }

// PKeyIndex is the partition of the packet, by its place in the port's table;
// valid for receives of the general service interface.
func (w *WC) PKeyIndex() uint16 { return w.wc.PKeyIndex }

// Flags say which of the fields there are (enum ibv_wc_flags); HasGRH, Imm and
// Invalidated look at them.
func (w *WC) Flags() uint32 { return w.wc.Flags }

// VendorErr is the provider's own code for a failure.
func (w *WC) VendorErr() uint32 { return w.wc.VendorErr }

// HasGRH tells whether the first 40 bytes of a UD receive hold a global route
// header (RoCE v2 over IPv4: 20 undefined bytes, then the IPv4 header).
func (w *WC) HasGRH() bool { return w.wc.Flags&wcFlagGRH != 0 }

// Imm is the immediate of a receive, in host byte order, if there is one.
func (w *WC) Imm() (uint32, bool) {
	if w.wc.Flags&wcFlagImm == 0 {
		return 0, false
	}
	return bigEndian32(w.wc.ImmData), true
}

// Invalidated is the key of this side that the sender of a received SEND with
// invalidate ended, if it was one. rxe ends the key, but reports no flag that
// libibverbs knows: there this tells of no SEND.
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
