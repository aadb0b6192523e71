package srd

import (
	"encoding/hex"
	"fmt"

	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Addr is the address at which an endpoint receives. How peers learn it is up to the
// program. Addr is comparable.
type Addr struct {
	GID  verbs.GID
	QPN  uint32
	QKey uint32
}

// AddrLen is the length of an encoded address in bytes.
const AddrLen = 26

const addrVersion = 1

// String returns the GID, as an IPv4 address if it stands for one, and the queue pair number.
func (a Addr) String() string { return fmt.Sprintf("%v/%#x", a.GID.Addr(), a.QPN) }

// AppendBinary appends the encoded address to b: a version, 0, GID, queue pair number
// and queue key, big endian.
func (a Addr) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, addrVersion, 0)
	b = append(b, a.GID[:]...)
	for _, v := range []uint32{a.QPN, a.QKey} {
		b = append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	return b, nil
}

// MarshalBinary encodes the address as [Addr.AppendBinary] does.
func (a Addr) MarshalBinary() ([]byte, error) { return a.AppendBinary(nil) }

// UnmarshalBinary decodes an address. It refuses everything that AppendBinary does not
// make, with [verbs.ErrMessage].
func (a *Addr) UnmarshalBinary(b []byte) error {
	if len(b) != AddrLen || b[0] != addrVersion || b[1] != 0 || b[18] != 0 {
		return fmt.Errorf("srd: decode address %s: %w", hex.EncodeToString(b[:min(len(b), AddrLen)]), verbs.ErrMessage)
	}
	number := func(b []byte) uint32 {
		return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	}
	*a = Addr{GID: verbs.GID(b[2:18]), QPN: number(b[18:]), QKey: number(b[22:])}
	return nil
}

func (a Addr) wire() wire.Addr { return wire.Addr{GID: a.GID, QPN: a.QPN, QKey: a.QKey} }

func addrOf(a wire.Addr) Addr { return Addr{GID: a.GID, QPN: a.QPN, QKey: a.QKey} }
