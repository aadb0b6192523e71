package verbs

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/cgo"
)

// The one place above package cgo with views over registered memory.

// addressOf is the address of a slice's first byte as devices see it. The
// caller keeps the memory in place.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// rawWCs are the same completions as package cgo knows them: WC wraps a cgo.WC
// and nothing else.
func rawWCs(wcs []WC) []cgo.WC {
	return unsafe.Slice((*cgo.WC)(unsafe.Pointer(unsafe.SliceData(wcs))), len(wcs))
}

// rawWCExs is the same for the completions of extended queues.
func rawWCExs(wcs []WCEx) []cgo.WCEx {
	return unsafe.Slice((*cgo.WCEx)(unsafe.Pointer(unsafe.SliceData(wcs))), len(wcs))
}

// gather is [driver.Gather].
func gather(dst []byte, sges ...SGE) []byte {
	for i := range sges {
		at := *(*unsafe.Pointer)(unsafe.Pointer(&sges[i].Addr))
		dst = append(dst, unsafe.Slice((*byte)(at), sges[i].Length)...)
	}
	return dst
}

// word is an 8-byte aligned word of the region, or nil.
func (m *MR) word(off int) *uint64 {
	if off < 0 || off > len(m.buf)-8 || (m.addr+uint64(off))%8 != 0 {
		return nil
	}
	return (*uint64)(unsafe.Pointer(&m.buf[off]))
}

// Load64 reads the aligned word at offset off, as atomics leave it: in host byte order,
// in one piece, and not before anything that the program read earlier. It returns
// [ErrRange] for a word that is misaligned or outside.
func (m *MR) Load64(off int) (uint64, error) {
	if !m.life.Enter() {
		return 0, opError("load from", m.life.Label, ErrClosed)
	}
	defer m.life.Exit()
	w := m.word(off)
	if w == nil {
		return 0, opError("load from", m.life.Label, ErrRange, "offset ", off)
	}
	return atomic.LoadUint64(w), nil
}

// Store64 writes the aligned word at offset off in one piece. It is not atomic
// against RDMA atomics on devices with an [AtomicCap] of [AtomicHCA].
func (m *MR) Store64(off int, v uint64) error {
	if !m.life.Enter() {
		return opError("store to", m.life.Label, ErrClosed)
	}
	defer m.life.Exit()
	w := m.word(off)
	if w == nil {
		return opError("store to", m.life.Label, ErrRange, "offset ", off)
	}
	atomic.StoreUint64(w, v)
	return nil
}

// littleEndian is the byte order of this host.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// Uint64 is the word at offset off of b in host byte order, as an atomic left
// it in a plain buffer.
func Uint64(b []byte, off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }

// Two types that are views of each other have one layout.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(WCEx{})-unsafe.Sizeof(cgo.WCEx{})]
	_ = [1]struct{}{}[unsafe.Offsetof(WCEx{}.timestamp)-unsafe.Offsetof(cgo.WCEx{}.Timestamp)]
	_ = [1]struct{}{}[unsafe.Offsetof(WCEx{}.wallClock)-unsafe.Offsetof(cgo.WCEx{}.WallClock)]
	_ = [1]struct{}{}[unsafe.Offsetof(WCEx{}.sender)-unsafe.Offsetof(cgo.WCEx{}.Sender)]
	_ = [1]struct{}{}[unsafe.Sizeof(WC{})-unsafe.Sizeof(cgo.WC{})]
)
