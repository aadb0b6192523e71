package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrAddress: not an address of a target, or of another version.
var ErrAddress = errors.New("malformed target address")

// Address is what an initiator must know of a target.
type Address struct {
	GID        GID
	LID        uint16
	Service    uint16
	KeyCheck   uint16
	Hardware   bool
	MTU        MTU
	QPN        uint32
	QKey       uint32
	Generation uint64
}

const (
	addressMagic   = "GVDA"
	addressVersion = 2
	// AddressLen is the length of the message form.
	AddressLen = 4 + 1 + 1 + 1 + 1 + 16 + 2 + 2 + 4 + 4 + 8 + 2 + 2 + 4
)

// Append appends the message form, all of it big endian:
//
//	"GVDA" | version 1 | hardware 1 | MTU 1 | 0 1 | GID 16 | LID 2 | service 2 |
//	QPN 4 | Q_Key 4 | generation 8 | key check 2 | 0 2 | CRC-32C of all before 4
func (a *Address) Append(b []byte) []byte {
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
	b = be.AppendUint64(b, a.Generation)
	b = be.AppendUint16(b, a.KeyCheck)
	b = be.AppendUint16(b, 0)
	return be.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// Decode takes exactly what Append makes; anything else is [ErrAddress].
func (a *Address) Decode(b []byte) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrAddress}, args...)...)
	}
	be := binary.BigEndian
	switch {
	case len(b) != AddressLen:
		return bad("%d bytes", len(b))
	case string(b[:4]) != addressMagic:
		return bad("it begins with %q", b[:4])
	case b[4] != addressVersion:
		return bad("version %d, this program speaks %d", b[4], addressVersion)
	case be.Uint32(b[AddressLen-4:]) != crc32.Checksum(b[:AddressLen-4], castagnoli):
		return bad("checksum")
	case b[5] > 1 || b[7] != 0 || be.Uint16(b[46:]) != 0:
		return bad("reserved bytes are set")
	}
	out := Address{GID: GID(b[8:24]), LID: be.Uint16(b[24:]), Service: be.Uint16(b[26:]), MTU: MTU(b[6]), QPN: be.Uint32(b[28:]),
		QKey: be.Uint32(b[32:]), Generation: be.Uint64(b[36:]), KeyCheck: be.Uint16(b[44:]), Hardware: b[5] == 1}
	switch {
	case out.QPN>>24 != 0:
		return bad("queue pair number %#x", out.QPN)
	case out.MTU.Bytes() == 0:
		return bad("MTU code %d", out.MTU)
	}
	*a = out
	return nil
}

// KeyCheckOf is 16 bits of an access key that a target puts into its address: an
// initiator that gets no reply sees by them whether its key may be the reason,
// since a target does not reply without its key. 0 means that there is nothing to compare,
// and is no key's.
func KeyCheckOf(key uint64) uint16 {
	var b [8 + 4]byte
	copy(b[:], "key:")
	binary.BigEndian.PutUint64(b[4:], key)
	sum := crc32.Checksum(b[:], castagnoli)
	return max(uint16(sum^sum>>16), 1)
}
