package wire

import "encoding/binary"

// Hello is what client and server tell each other while they connect: the queue pair of
// the READs, as its package encodes it, beside the one that carries the messages.
type Hello struct {
	Epoch    uint32 // of the server; 0 from a client
	Frames   uint32 // SENDs that may be on their way to it before it takes them
	Frame    uint32 // bytes that each of them may have
	Endpoint []byte
}

const (
	helloMagic  = 0xca4e0004 // the last digits are the version
	helloFixed  = 20
	maxEndpoint = 1024
)

// AppendHello encodes it.
func AppendHello(dst []byte, h *Hello) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, helloMagic)
	dst = le.AppendUint32(dst, h.Epoch)
	dst = le.AppendUint32(dst, h.Frames)
	dst = le.AppendUint32(dst, h.Frame)
	dst = le.AppendUint32(dst, uint32(len(h.Endpoint)))
	return append(dst, h.Endpoint...)
}

// ReadHello decodes it. The endpoint is a view.
func ReadHello(src []byte) (Hello, error) {
	le := binary.LittleEndian
	if len(src) < helloFixed {
		return Hello{}, Short
	}
	n := le.Uint32(src[16:])
	if le.Uint32(src) != helloMagic || n > maxEndpoint || len(src) > helloFixed+int(n) {
		return Hello{}, Malformed
	}
	if len(src) < helloFixed+int(n) {
		return Hello{}, Short
	}
	return Hello{le.Uint32(src[4:]), le.Uint32(src[8:]), le.Uint32(src[12:]), src[helloFixed:]}, nil
}
