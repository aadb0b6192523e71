package cgo

import "unsafe"

// Opcodes that struct ibv_send_wr of the headers does not know.
const (
	WRFlush       = 14
	WRAtomicWrite = 15
	WRRaw         = 0x100 // a work queue entry of mlx5, at the address that SetRDMA gives
)

// SGE has the layout of struct ibv_sge: one piece of local memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWR has the layout of struct ibv_send_wr. The words named Op are a union
// with a meaning for each opcode: see [SendWR.SetRDMA] and its siblings.
type SendWR struct {
	ID      uint64
	Next    uintptr
	SGList  uintptr
	NumSGE  int32
	Opcode  uint32
	Flags   uint32
	ImmData uint32 // big endian
	op      [4]uint64
	_       uint64    // qp_type
	tail    [6]uint64 // bind_mw, tso, or struct gv_dest of extended.h
}

// SetRDMA fills the union for READ and WRITE.
func (w *SendWR) SetRDMA(remoteAddr uint64, rkey uint32) {
	w.op[0] = remoteAddr
	half(&w.op[1])[0] = rkey
}

// SetAtomic fills the union for CMP_SWAP and FETCH_ADD; add goes where compare
// does.
func (w *SendWR) SetAtomic(remoteAddr, compareAdd, swap uint64, rkey uint32) {
	w.op[0], w.op[1], w.op[2] = remoteAddr, compareAdd, swap
	half(&w.op[3])[0] = rkey
}

// SetUD fills the union for a datagram.
func (w *SendWR) SetUD(ah AH, qpn, qkey uint32) {
	w.op[0] = uint64(ah)
	*half(&w.op[1]) = [2]uint32{qpn, qkey}
}

// SetInvalidate names the key that LOCAL_INV and SEND with invalidate end. It
// lies where the immediate would.
func (w *SendWR) SetInvalidate(rkey uint32) { w.ImmData = rkey }

// SetBind fills in what BIND_MW makes accessible under the new key.
func (w *SendWR) SetBind(mw MW, rkey uint32, mr MR, addr, length uint64, access uint32) {
	w.tail = [6]uint64{uint64(mw), 0, uint64(mr), addr, length, 0}
	half(&w.tail[1])[0] = rkey
	half(&w.tail[5])[0] = access
}

// SetDest fills in where a request of a queue pair without a connection goes,
// beside what SetRDMA and SetAtomic say. stream is from 1 on, or 0.
func (w *SendWR) SetDest(ah AH, qpn, qkey uint32, dcKey uint64, stream uint32) {
	w.tail = [6]uint64{uint64(ah), 0, dcKey, 0, 0, 0}
	*half(&w.tail[1]) = [2]uint32{qpn, qkey}
	half(&w.tail[3])[0] = stream
}

// half is a word of the union as the two fields that C has in it.
func half(word *uint64) *[2]uint32 { return (*[2]uint32)(unsafe.Pointer(word)) }

// RecvWR has the layout of struct ibv_recv_wr.
type RecvWR struct {
	ID     uint64
	Next   uintptr
	SGList uintptr
	NumSGE int32
	_      [4]byte
}

// Times are readings of CLOCK_BOOTTIME, in nanoseconds: Posted before a post and, with Ends, Over after
// the poll that followed, or 0 if that found nothing. If Posted is not before Until, which is not 0,
// nothing is posted, and the error is ETIME. With Bound and without Until, Posted may be earlier by any
// time, mostly less than a few milliseconds, which costs less. It has the layout of struct gv_times of
// shim.h.
type Times struct {
	Posted, Over, Until int64
	Bound, Ends         bool
	_                   [6]byte
}

// WC has the layout of struct ibv_wc.
type WC struct {
	ID           uint64
	Status       uint32
	Opcode       uint32
	VendorErr    uint32
	ByteLen      uint32
	ImmData      uint32 // big endian
	QPNum        uint32
	SrcQP        uint32
	Flags        uint32
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	_            [2]byte
}

// WCEx has the layout of struct gv_wc_ex of extended.h.
type WCEx struct {
	WC
	Timestamp uint64 // ticks of the device's clock
	WallClock uint64 // nanoseconds since the epoch
	Sender    [16]byte
}

// SendChain is C memory for a chain of work requests, linked in order. Go
// writes WRs and SGEs through the slices; slot i owns
// SGEs[i*MaxSGE:(i+1)*MaxSGE] and Inline[i*MaxInline:(i+1)*MaxInline]. The
// memory has no Go pointers in it and stays at its place.
type SendChain struct {
	WRs       []SendWR
	SGEs      []SGE
	Inline    []byte
	InlineAt  uint64 // address of Inline[0]
	MaxSGE    int
	MaxInline int
}

// RecvChain is the same for receives.
type RecvChain struct {
	WRs    []RecvWR
	SGEs   []SGE
	MaxSGE int
}
