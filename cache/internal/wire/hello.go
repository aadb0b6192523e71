package wire

import "encoding/binary"

// Hello is what client and server tell each other while they connect: the queue pair of
// the READs, as its package encodes it, beside the one that carries the messages.
type Hello struct {
	Epoch    uint32         // of the server; 0 from a client
	Frames   uint32         // SENDs that may be on their way to it before it takes them
	Frame    uint32         // bytes that each of them may have
	Beats    bool           // the client wants to hear from the server when there is nothing new, too
	Seal     [SealSize]byte // of all of this, and of the queue pair that says it; zeros without a key
	Endpoint []byte
}

// SealSize is the length of a seal in bytes.
const SealSize = 32

const (
	helloMagic  = 0xca4e0007 // the last digits are the version
	helloFixed  = 24 + SealSize
	maxEndpoint = 1024
	helloBeats  = 2 // a bit
)

// AppendHello encodes it.
func AppendHello(dst []byte, h *Hello) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, helloMagic)
	dst = le.AppendUint32(dst, h.Epoch)
	dst = le.AppendUint32(dst, h.Frames)
	dst = le.AppendUint32(dst, h.Frame)
	bits := uint32(0)
	if h.Beats {
		bits |= helloBeats
	}
	dst = le.AppendUint32(dst, bits)
	dst = le.AppendUint32(dst, uint32(len(h.Endpoint)))
	dst = append(dst, h.Seal[:]...)
	return append(dst, h.Endpoint...)
}

// ReadHello decodes it. The endpoint is a view.
func ReadHello(src []byte) (Hello, error) {
	le := binary.LittleEndian
	if len(src) < helloFixed {
		return Hello{}, Short
	}
	bits, n := le.Uint32(src[16:]), le.Uint32(src[20:])
	if le.Uint32(src) != helloMagic || bits&^helloBeats != 0 || n > maxEndpoint || len(src) > helloFixed+int(n) {
		return Hello{}, Malformed
	}
	if len(src) < helloFixed+int(n) {
		return Hello{}, Short
	}
	h := Hello{
		Epoch: le.Uint32(src[4:]), Frames: le.Uint32(src[8:]), Frame: le.Uint32(src[12:]),
		Beats: bits&helloBeats != 0, Endpoint: src[helloFixed:],
	}
	copy(h.Seal[:], src[24:])
	return h, nil
}
