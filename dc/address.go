package dc

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goverbs/goverbs/verbs"
)

// Address is what an initiator must know to reach a target: 52 bytes in message
// form, without the access key. It may be sent to anyone.
type Address struct {
	GID verbs.GID
	LID uint16 // InfiniBand
	// Service is the port at which the target tells the rest of its address,
	// so that one that was restarted is found again; 0 means none.
	Service uint16
	// Hardware: the target is a DCT.
	Hardware bool
	MTU      verbs.MTU // of the target's port; of the DCT if Hardware
	QPN      uint32    // of the control queue pair; of the DCT if Hardware
	QKey     uint32    // of the control queue pair
	// Incarnation tells a target from another one that had its address before;
	// 0 means whichever is there. The DC key of a DCT is the access key, each
	// bit of it inverted that is set here.
	Incarnation uint64
}

const (
	addressMagic   = "GVDA"
	addressVersion = 2
	addressLen     = 4 + 1 + 1 + 1 + 1 + 16 + 2 + 2 + 4 + 4 + 8 + 4 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendBinary appends the message form, all of it big endian:
//
//	"GVDA" | version 1 | hardware 1 | MTU 1 | 0 1 | GID 16 | LID 2 | service 2 |
//	QPN 4 | Q_Key 4 | incarnation 8 | 0 4 | CRC-32C of all before 4
func (a Address) AppendBinary(b []byte) ([]byte, error) {
	start := len(b)
	be := binary.BigEndian
	b = append(b, addressMagic...)
	hw := byte(0)
	if a.Hardware {
		hw = 1
	}
	b = append(b, addressVersion, hw, byte(a.MTU), 0)
	b = append(b, a.GID[:]...)
	b = be.AppendUint16(b, a.LID)
	b = be.AppendUint16(b, a.Service)
	b = be.AppendUint32(b, a.QPN)
	b = be.AppendUint32(b, a.QKey)
	b = be.AppendUint64(b, a.Incarnation)
	b = be.AppendUint32(b, 0)
	return be.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// MarshalBinary is [Address.AppendBinary] into new memory.
func (a Address) MarshalBinary() ([]byte, error) { return a.AppendBinary(nil) }

// UnmarshalBinary decodes exactly one address. Anything else than what
// AppendBinary makes is refused with [ErrAddress].
func (a *Address) UnmarshalBinary(b []byte) error {
	bad := func(format string, args ...any) error {
		return opError("decode", "address", fmt.Errorf("%w: "+format, append([]any{ErrAddress}, args...)...))
	}
	be := binary.BigEndian
	switch {
	case len(b) != addressLen:
		return bad("%d bytes", len(b))
	case string(b[:4]) != addressMagic:
		return bad("it begins with %q", b[:4])
	case b[4] != addressVersion:
		return bad("version %d, this program speaks %d", b[4], addressVersion)
	case be.Uint32(b[addressLen-4:]) != crc32.Checksum(b[:addressLen-4], castagnoli):
		return bad("checksum")
	case b[5] > 1 || b[7] != 0 || be.Uint32(b[44:]) != 0:
		return bad("reserved bytes are set")
	}
	out := Address{GID: verbs.GID(b[8:24]), LID: be.Uint16(b[24:]), Service: be.Uint16(b[26:]), MTU: verbs.MTU(b[6]), QPN: be.Uint32(b[28:]),
		QKey: be.Uint32(b[32:]), Incarnation: be.Uint64(b[36:]), Hardware: b[5] == 1}
	switch {
	case out.QPN>>24 != 0:
		return bad("queue pair number %#x", out.QPN)
	case out.MTU.Bytes() == 0:
		return bad("MTU code %d", out.MTU)
	}
	*a = out
	return nil
}

func (a Address) String() string {
	return fmt.Sprintf("%v qpn %#x", a.GID, a.QPN)
}
