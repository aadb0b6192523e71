package lockoffload

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goverbs/goverbs/verbs"
)

// A slot is a lock word, then a record: version 8, length 4, checksum 4, data.
const (
	lockSize   = 8
	headerSize = 16
	slotAlign  = 64 // two lock words never share a cache line
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Layout says where lock words and records lie. Both sides use the same one.
type Layout struct {
	Slots int // number of records, each with a lock of its own
	Size  int // bytes of data in a record, at most
}

func (l Layout) check() error {
	if l.Slots <= 0 || l.Size <= 0 || l.Size > 1<<20 || l.Slots > 1<<30/l.stride() {
		return fmt.Errorf("lockoffload: layout of %d slots of %d bytes: %w", l.Slots, l.Size, ErrConfig)
	}
	return nil
}

func (l Layout) stride() int {
	return (lockSize + headerSize + l.Size + slotAlign - 1) / slotAlign * slotAlign
}

// Bytes is the memory that the layout needs.
func (l Layout) Bytes() int { return l.Slots * l.stride() }

// Region is a target's registered memory with lock words and records.
type Region struct {
	Layout
	mr *verbs.MR
}

// NewRegion lays out the start of mr, which needs remote READ, WRITE and atomic
// access: all locks free, all records empty with version 0. It writes with the
// CPU, so no peer may know the memory yet; afterwards the program must touch
// lock words by RDMA only. The memory stays the caller's to close.
func NewRegion(mr *verbs.MR, l Layout) (*Region, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if mr.Len() < l.Bytes() {
		return nil, fmt.Errorf("lockoffload: region of %d bytes, layout needs %d: %w", mr.Len(), l.Bytes(), ErrConfig)
	}
	for i := range l.Slots {
		slot := mr.Bytes()[i*l.stride():][:l.stride()]
		clear(slot)
		encode(slot[lockSize:], 0, nil)
	}
	return &Region{Layout: l, mr: mr}, nil
}

// Remote is what peers need to reach the region.
func (r *Region) Remote() verbs.Region { return r.mr.Region() }

// encode writes a record and answers its length.
func encode(dst []byte, version uint64, data []byte) int {
	binary.LittleEndian.PutUint64(dst, version)
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(data)))
	n := headerSize + copy(dst[headerSize:], data)
	binary.LittleEndian.PutUint32(dst[12:], checksum(dst[:n]))
	return n
}

// decode checks a record, which may hold anything. The data is part of src.
func decode(src []byte) (version uint64, data []byte, err error) {
	if len(src) < headerSize {
		return 0, nil, ErrRecord
	}
	n := binary.LittleEndian.Uint32(src[8:])
	if uint64(n) > uint64(len(src)-headerSize) {
		return 0, nil, ErrRecord
	}
	rec := src[:headerSize+int(n)]
	if binary.LittleEndian.Uint32(rec[12:]) != checksum(rec) {
		return 0, nil, ErrRecord
	}
	return binary.LittleEndian.Uint64(rec), rec[headerSize:], nil
}

// checksum covers all of a record but the checksum itself.
func checksum(rec []byte) uint32 {
	return crc32.Update(crc32.Checksum(rec[:12], castagnoli), castagnoli, rec[headerSize:])
}
