package lockoffload

import (
	"encoding/binary"
	"hash/crc32"
)

// A copy of a record is version 8, length 4, checksum 4, data. There are two
// copies: a holder of the lock writes the one that is not current, so that one
// who dies in the middle of a WRITE damages nothing that counts.
const headerSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes a copy and answers its length, without alignment.
func encode(dst []byte, version uint64, data []byte) int {
	binary.LittleEndian.PutUint64(dst, version)
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(data)))
	n := headerSize + copy(dst[headerSize:], data)
	binary.LittleEndian.PutUint32(dst[12:], checksum(dst[:n]))
	return n
}

// decode checks a copy, which may hold anything. The data is part of src.
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

// checksum covers all of a copy but the checksum itself.
func checksum(rec []byte) uint32 {
	return crc32.Update(crc32.Checksum(rec[:12], castagnoli), castagnoli, rec[headerSize:])
}

// current is what a READ of both copies says about a record.
type current struct {
	which   int // of the copies; the other one is written next
	version uint64
	data    []byte // part of what was read
	// whole tells that both copies are valid. One that is not may have been
	// read under a WRITE: the other is then current only if the lock was held
	// during the READ. A reader that is not sure of that wants both.
	whole bool
}

// decodePair looks at both copies of a record, len(pair) / 2 bytes each.
func decodePair(pair []byte) (current, error) {
	half := len(pair) / 2
	va, da, ea := decode(pair[:half])
	vb, db, eb := decode(pair[half:])
	switch {
	case ea != nil && eb != nil:
		return current{}, ErrRecord
	case ea != nil || eb == nil && vb > va:
		return current{which: 1, version: vb, data: db, whole: ea == nil}, nil
	}
	return current{which: 0, version: va, data: da, whole: eb == nil}, nil
}
