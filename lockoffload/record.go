package lockoffload

import (
	"encoding/binary"
	"hash/crc32"
)

// A slot's data has two copies. A change writes the one that is not current, as a
// whole, so that a writer who dies in the middle damages nothing that counts, and so
// that all records change at one moment: when the last byte of the copy is there. A
// copy is
//
//	version 8 | length of the body 4 | checksum 4 | body
//
// The version grows by one with each change. Of slots with one record the body is the
// record's data; with several it is, for each of them,
//
//	version 8 | length 4 | 0 4 | data, to the next 8 bytes beyond Layout.Size
const (
	headerSize = 16
	entryHead  = 16
)

func (l *Layout) entryStride() int { return entryHead + align(l.Size, 8) }

func (l *Layout) bodySize() int {
	if l.Records == 1 {
		return l.Size
	}
	return l.Records * l.entryStride()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode writes a copy and answers its length, without alignment.
func encode(dst []byte, version uint64, body []byte) int {
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(body)))
	copy(dst[headerSize:], body)
	return seal(dst, version, len(body))
}

// seal gives a copy with a body of n bytes its version and checksum.
func seal(dst []byte, version uint64, n int) int {
	n += headerSize
	binary.LittleEndian.PutUint64(dst, version)
	binary.LittleEndian.PutUint32(dst[12:], checksum(dst[:n]))
	return n
}

// decode checks a copy, which may hold anything. The body is part of src.
func decode(src []byte) (version uint64, body []byte, err error) {
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

// current is what a READ of both copies says about a slot.
type current struct {
	which   int // of the copies; the other one is written next
	version uint64
	body    []byte // part of what was read
	// whole tells that both copies are valid. One that is not may have been
	// read under a WRITE: the other is then current only if the lock was held
	// during the READ. A reader that does not hold the lock wants both.
	whole bool
}

// decodePair looks at both copies of a slot.
func (l *Layout) decodePair(pair []byte) (current, error) {
	half := l.copyStride()
	va, da, ea := l.decodeCopy(pair[:half])
	vb, db, eb := l.decodeCopy(pair[half:])
	switch {
	case ea != nil && eb != nil:
		return current{}, ErrRecord
	case ea != nil || eb == nil && vb > va:
		return current{which: 1, version: vb, body: db, whole: ea == nil}, nil
	}
	return current{which: 0, version: va, body: da, whole: eb == nil}, nil
}

// trustPair is decodePair for copies that are known to be valid.
func (l *Layout) trustPair(pair []byte) current {
	which, half := 0, l.copyStride()
	va, vb := binary.LittleEndian.Uint64(pair), binary.LittleEndian.Uint64(pair[half:])
	if vb > va {
		which = 1
	}
	cur := pair[which*half:][:half]
	n := binary.LittleEndian.Uint32(cur[8:])
	return current{which: which, version: max(va, vb), body: cur[headerSize:][:n], whole: true}
}

func (l *Layout) decodeCopy(src []byte) (version uint64, body []byte, err error) {
	if version, body, err = decode(src); err == nil && l.Records > 1 && len(body) != l.bodySize() {
		err = ErrRecord
	}
	return version, body, err
}

// content is what one record has.
type content struct {
	version uint64
	data    []byte
}

// record looks one up in the body of a copy.
func (l *Layout) record(c *current, r int) (content, error) {
	if l.Records == 1 {
		return content{c.version, c.body}, nil
	}
	entry := c.body[r*l.entryStride():][:l.entryStride()]
	n := binary.LittleEndian.Uint32(entry[8:])
	if uint64(n) > uint64(l.Size) {
		return content{}, ErrRecord
	}
	return content{binary.LittleEndian.Uint64(entry), entry[entryHead:][:n]}, nil
}

// stage begins the next copy, in dst, with the body of the one that is current.
func (l *Layout) stage(dst []byte, c *current) {
	binary.LittleEndian.PutUint32(dst[8:], uint32(copy(dst[headerSize:], c.body)))
}

// put changes a record of a copy that was staged. It has one version more than in the
// copy that is current, however often it is put.
func (l *Layout) put(dst []byte, r int, version uint64, data []byte) {
	if l.Records == 1 {
		binary.LittleEndian.PutUint32(dst[8:], uint32(copy(dst[headerSize:], data)))
		return
	}
	entry := dst[headerSize+r*l.entryStride():]
	binary.LittleEndian.PutUint64(entry, version)
	binary.LittleEndian.PutUint32(entry[8:], uint32(len(data)))
	copy(entry[entryHead:], data)
}

// staged is a copy under construction, read like one that is current.
func (l *Layout) staged(dst []byte, version uint64) current {
	return current{version: version, body: dst[headerSize:][:binary.LittleEndian.Uint32(dst[8:])]}
}

// seal ends the construction of a copy and answers its length.
func (l *Layout) seal(dst []byte, version uint64) int {
	if l.Records > 1 {
		binary.LittleEndian.PutUint32(dst[8:], uint32(l.bodySize()))
	}
	return seal(dst, version, int(binary.LittleEndian.Uint32(dst[8:])))
}
