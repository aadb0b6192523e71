// Package wire has what streams say on the wire: a greeting in the private data of
// the connection, and the immediates of WRITEs.
package wire

import (
	"encoding/binary"
	"fmt"
)

// Immediates tell how many bytes came, or that these were the last ones, or give
// back credit.
const (
	Credit = 1 << 31 // bits 22..30: messages, bits 0..21: units of bytes
	Fin    = 1 << 30 // no bytes follow the ones of this message
	Length = Fin - 1

	CreditUnit        = 64
	MaxCreditUnits    = 1<<22 - 1
	MaxCreditMessages = 1<<9 - 1
)

// Limits of a greeting.
const (
	MinRing     = 4 << 10
	MaxRing     = 64 << 20
	MinMessages = 8
	MaxMessages = 256
)

// Violation is what a peer says against the protocol.
type Violation string

func (v Violation) Error() string { return string(v) }

// Violated returns a [Violation].
func Violated(detail ...any) error { return Violation(fmt.Sprint(detail...)) }

// Hello tells the peer of the ring that it writes to.
type Hello struct {
	Addr     uint64
	Size     uint32 // in bytes
	RKey     uint32
	Messages uint16 // that may be under way to the ring
}

const (
	magic   = "GVST"
	version = 1

	// HelloLen is the length of an encoded greeting.
	HelloLen = 24
)

// Encode: "GVST" | version 1 | 0 | messages 2 | ring size 4 | rkey 4 |
// address 8, all big endian.
func (h *Hello) Encode() []byte {
	be := binary.BigEndian
	b := append(make([]byte, 0, HelloLen), magic...)
	b = append(b, version, 0)
	b = be.AppendUint16(b, h.Messages)
	b = be.AppendUint32(b, h.Size)
	b = be.AppendUint32(b, h.RKey)
	return be.AppendUint64(b, h.Addr)
}

// Decode takes private data, which has zeros behind the message.
func Decode(b []byte) (Hello, error) {
	bad := func(detail ...any) (Hello, error) { return Hello{}, Violated(detail...) }
	if len(b) < HelloLen || string(b[:4]) != magic {
		return bad("the peer speaks something else")
	}
	if b[4] != version || b[5] != 0 {
		return bad("version ", b[4], ".", b[5])
	}
	for _, v := range b[HelloLen:] {
		if v != 0 {
			return bad("longer than it should be")
		}
	}
	be := binary.BigEndian
	h := Hello{Messages: be.Uint16(b[6:]), Size: be.Uint32(b[8:]), RKey: be.Uint32(b[12:]), Addr: be.Uint64(b[16:])}
	if h.Size < MinRing || h.Size > MaxRing || h.Addr+uint64(h.Size) < h.Addr {
		return bad("ring of ", h.Size, " bytes at ", fmt.Sprintf("%#x", h.Addr))
	}
	if h.Messages < MinMessages || h.Messages > MaxMessages {
		return bad(h.Messages, " messages")
	}
	return h, nil
}
