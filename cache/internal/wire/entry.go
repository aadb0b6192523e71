package wire

import (
	"encoding/binary"

	"github.com/dchest/siphash"
)

// EntrySize is the length of an entry of the map.
const EntrySize = 32

// Slots begin at multiples of SlotUnit, and the length of a READ is a multiple of
// ReadUnit.
const (
	SlotUnit  = 32
	ReadUnit  = 16
	MaxRegion = 1 << 31 // bytes of a region
	MaxRecord = (1<<lengthBits - 1) * ReadUnit

	offsetBits = 26
	lengthBits = 23
)

// Place is where a record lies: region, offset and length in one word.
type Place uint64

// PlaceOf packs a place. The offset is a multiple of [SlotUnit] below [MaxRegion], the
// length at most [MaxRecord].
func PlaceOf(region uint16, offset, length int) Place {
	units := uint64((length + ReadUnit - 1) / ReadUnit)
	return Place(uint64(region)<<(offsetBits+lengthBits) | uint64(offset/SlotUnit)<<lengthBits | units)
}

// Region returns the number of the region.
func (p Place) Region() uint16 { return uint16(p >> (offsetBits + lengthBits)) }

// Offset returns the bytes from the region's start.
func (p Place) Offset() int { return int(p>>lengthBits&(1<<offsetBits-1)) * SlotUnit }

// Length returns how many bytes to READ: the record's, rounded up to [ReadUnit].
func (p Place) Length() int { return int(p&(1<<lengthBits-1)) * ReadUnit }

// Entry is one pointer of the map. The zero entry is none: versions begin with 1.
type Entry struct {
	Fingerprint uint64
	Version     uint64
	Place       Place
	Epoch       uint32
	Item        uint32 // the server's own number; nothing to a client
}

// Put writes an entry.
func (e *Entry) Put(dst []byte) {
	_ = dst[EntrySize-1]
	binary.LittleEndian.PutUint64(dst, e.Fingerprint)
	binary.LittleEndian.PutUint64(dst[8:], e.Version)
	binary.LittleEndian.PutUint64(dst[16:], uint64(e.Place))
	binary.LittleEndian.PutUint32(dst[24:], e.Epoch)
	binary.LittleEndian.PutUint32(dst[28:], e.Item)
}

// GetEntry reads an entry. Any 32 bytes are one; [Validate] judges what it points at.
func GetEntry(src []byte) Entry {
	_ = src[EntrySize-1]
	return Entry{
		Fingerprint: binary.LittleEndian.Uint64(src),
		Version:     binary.LittleEndian.Uint64(src[8:]),
		Place:       Place(binary.LittleEndian.Uint64(src[16:])),
		Epoch:       binary.LittleEndian.Uint32(src[24:]),
		Item:        binary.LittleEndian.Uint32(src[28:]),
	}
}

// Secret is the key of the fingerprints. A server makes it up when it starts.
type Secret [2]uint64

// Fingerprint returns the SipHash-2-4 of a key.
func (s Secret) Fingerprint(key []byte) uint64 { return siphash.Hash(s[0], s[1], key) }
