package wire

import "encoding/binary"

// Target is what a server says to a client that has no queue pair here: through what it READs, and what.
type Target struct {
	Epoch   uint32
	Number  uint64         // of the target, in this life of the server; a client takes no older one
	Key     uint64         // that READs through it need
	Address []byte         // of the target, as its package encodes it; empty: there is none just now
	Regions []byte         // of records, as their package encodes them
	Seal    [SealSize]byte // of all of this; zeros without a key
}

const (
	targetFixed = 24 + SealSize
	maxTarget   = 1024 // bytes of an address
	maxRegions  = 8192 // bytes of regions
)

// AppendTarget encodes it.
func AppendTarget(dst []byte, t *Target) []byte {
	start, le := len(dst), binary.LittleEndian
	dst = begin(dst, KindTarget, t.Epoch)
	dst = le.AppendUint64(dst, t.Number)
	dst = le.AppendUint64(dst, t.Key)
	dst = le.AppendUint32(dst, uint32(len(t.Address)))
	dst = le.AppendUint32(dst, uint32(len(t.Regions)))
	dst = append(dst, t.Seal[:]...)
	return end(append(append(dst, t.Address...), t.Regions...), start)
}

// ReadTarget decodes it. Address and regions are views.
func ReadTarget(src []byte) (t Target, err error) {
	epoch, b, err := open(src, KindTarget, targetFixed)
	if err != nil {
		return t, err
	}
	le := binary.LittleEndian
	address, regions := int(le.Uint32(b[16:])), int(le.Uint32(b[20:]))
	if address > maxTarget || regions > maxRegions || len(b) != targetFixed+address+regions {
		return t, Malformed
	}
	t = Target{
		Epoch: epoch, Number: le.Uint64(b), Key: le.Uint64(b[8:]),
		Address: b[targetFixed : targetFixed+address : targetFixed+address], Regions: b[targetFixed+address:],
	}
	copy(t.Seal[:], b[24:])
	return t, nil
}

// Said returns what the seal is of.
func (t Target) Said() []byte {
	t.Seal = [SealSize]byte{}
	return AppendTarget(nil, &t)
}
