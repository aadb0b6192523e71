package dc

import (
	"fmt"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// AddressLen is the length of an [Address] in message form.
const AddressLen = wire.AddressLen

// Address is what an initiator must know to reach a target: [AddressLen] bytes in
// message form, without the access key. It may be sent to anyone.
type Address struct {
	GID verbs.GID
	LID uint16 // InfiniBand
	// Service is a port of the connection manager at which initiators ask where the target
	// is, so that they find it after a restart ([TargetConfig.Service]); 0 means none.
	Service uint16
	// KeyCheck is 16 bits made of the access key, by which an initiator sees
	// that it was given another one: targets do not reply without the key. 0 means
	// none.
	KeyCheck uint16
	// Hardware: the target is a DCT.
	Hardware bool
	MTU      verbs.MTU // of the target's netdev ([verbs.Device.LocalMTU]); of the DCT if Hardware
	QPN      uint32    // of the control queue pair; of the DCT if Hardware
	QKey     uint32    // of the control queue pair
	// Generation distinguishes a target from another one that had its address before;
	// 0 means whichever is there. The DC key of a DCT is the access key, each
	// bit of it inverted that is set here.
	Generation uint64
}

func (a *Address) wire() wire.Address {
	return wire.Address{GID: wire.GID(a.GID), LID: a.LID, Service: a.Service, KeyCheck: a.KeyCheck, Hardware: a.Hardware, MTU: wire.MTU(a.MTU), QPN: a.QPN, QKey: a.QKey, Generation: a.Generation}
}

func (a *Address) control() wire.ControlAddress {
	return wire.ControlAddress{GID: wire.GID(a.GID), QPN: a.QPN, QKey: a.QKey, LID: a.LID}
}

// AppendBinary appends the message form, all of it big endian, with the length of each field in bytes:
//
//	"GVDA" | version 1 | hardware 1 | MTU 1 | 0 1 | GID 16 | LID 2 | service 2 |
//	QPN 4 | Q_Key 4 | generation 8 | key check 2 | 0 2 | CRC-32C of all before 4
func (a Address) AppendBinary(b []byte) ([]byte, error) {
	w := a.wire()
	return w.Append(b), nil
}

// MarshalBinary is [Address.AppendBinary] into new memory.
func (a Address) MarshalBinary() ([]byte, error) { return a.AppendBinary(nil) }

// UnmarshalBinary decodes exactly one address. Anything else than what
// AppendBinary makes is refused with [ErrAddress].
func (a *Address) UnmarshalBinary(b []byte) error {
	var w wire.Address
	if err := w.Decode(b); err != nil {
		return opError("decode", "address", err)
	}
	*a = Address{GID: verbs.GID(w.GID), LID: w.LID, Service: w.Service, KeyCheck: w.KeyCheck, Hardware: w.Hardware, MTU: verbs.MTU(w.MTU), QPN: w.QPN, QKey: w.QKey, Generation: w.Generation}
	return nil
}

func (a Address) String() string {
	return fmt.Sprintf("%v qpn %#x", a.GID, a.QPN)
}
