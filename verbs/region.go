package verbs

import "encoding/binary"

// Region is what it takes to READ and WRITE a peer's memory region. Its rkey is a bearer
// token: any peer with it and a connection in the region's protection domain can use it.
type Region struct {
	Addr   uint64 // in the address space of the peer
	Length uint64 // bytes
	RKey   uint32
}

// At names the memory from offset off on, for a work request. An offset
// outside the region gives a place that every post refuses with [ErrRange]; so does the
// end of the region, even for an access of no bytes. Whether the access ends inside is for
// the peer's device to check.
func (r Region) At(off uint64) Remote {
	if off >= r.Length {
		return badRemote
	}
	return Remote{Addr: r.Addr + off, RKey: r.RKey}
}

// Slice returns the n bytes of the region from offset off on. [Region.At] checks the
// bounds of the slice; the peer's device checks those of the whole region. If the range
// is outside the region, the result has no bytes.
func (r Region) Slice(off, n uint64) Region {
	if off > r.Length || n > r.Length-off {
		return Region{}
	}
	return Region{Addr: r.Addr + off, Length: n, RKey: r.RKey}
}

// RegionSize is how many bytes the message form of a [Region] has.
const RegionSize = 20

// AppendBinary appends the message form, big endian: address 8, length 8, rkey 4.
func (r Region) AppendBinary(b []byte) ([]byte, error) {
	be := binary.BigEndian
	b = be.AppendUint64(b, r.Addr)
	b = be.AppendUint64(b, r.Length)
	return be.AppendUint32(b, r.RKey), nil
}

// MarshalBinary is [Region.AppendBinary] into new memory.
func (r Region) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// UnmarshalBinary decodes what [Region.AppendBinary] makes. Another length is
// refused with [ErrMessage].
func (r *Region) UnmarshalBinary(b []byte) error {
	if len(b) != RegionSize {
		return opError("decode", "region", ErrMessage, len(b), " bytes")
	}
	be := binary.BigEndian
	*r = Region{Addr: be.Uint64(b), Length: be.Uint64(b[8:]), RKey: be.Uint32(b[16:])}
	return nil
}

// Remote is a place in a peer's memory.
type Remote struct {
	Addr uint64
	RKey uint32
}

var badRemote = Remote{Addr: 0xffffffffffffffff, RKey: 0xffffffff}
