package memory

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A slot's data has two copies. A change writes the one that is not current, as a
// whole, so that a writer that dies in the middle does not damage the current copy, and
// so that all records change at one moment: when the last byte of the copy is there. A
// copy is
//
//	version 8 | length of the body 4 | 0 4 | checksum 8 | body
//
// The version grows by one with each change. Of slots with one record the body is the
// record's data; with several it is, for each of them,
//
//	version 8 | length 4 | 0 4 | data, to the next 8 bytes beyond Layout.Size
const (
	HeaderSize = checksumAt + 8
	checksumAt = 16
	entryHead  = 16
)

func (l *Layout) entryStride() int { return entryHead + align(l.Size, 8) }

func (l *Layout) bodySize() int {
	if l.Records == 1 {
		return l.Size
	}
	return l.Records * l.entryStride()
}

// Encode writes a copy and returns its length, without alignment.
func Encode(dst []byte, version uint64, body []byte) int {
	binary.LittleEndian.PutUint32(dst[8:], uint32(len(body)))
	copy(dst[HeaderSize:], body)
	return seal(dst, version, len(body))
}

// seal gives a copy with a body of n bytes its version and checksum.
func seal(dst []byte, version uint64, n int) int {
	n += HeaderSize
	binary.LittleEndian.PutUint64(dst, version)
	binary.LittleEndian.PutUint32(dst[12:], 0)
	binary.LittleEndian.PutUint64(dst[checksumAt:], checksum(dst[:n]))
	return n
}

// Decode checks a copy, which may hold anything. The body is part of src.
func Decode(src []byte) (version uint64, body []byte, err error) {
	if len(src) < HeaderSize {
		return 0, nil, ErrRecord
	}
	n := binary.LittleEndian.Uint32(src[8:])
	if uint64(n) > uint64(len(src)-HeaderSize) {
		return 0, nil, ErrRecord
	}
	rec := src[:HeaderSize+int(n)]
	if binary.LittleEndian.Uint64(rec[checksumAt:]) != checksum(rec) {
		return 0, nil, ErrRecord
	}
	return binary.LittleEndian.Uint64(rec), rec[HeaderSize:], nil
}

// checksum covers all of a copy but the checksum itself. It has 64 bits because nothing else
// tells a torn copy from a whole one, and a busy slot may have a million torn READs a second.
func checksum(rec []byte) uint64 {
	return xxh3.HashSeed(rec[HeaderSize:], xxh3.Hash(rec[:checksumAt]))
}

// Current is the current data of a slot, from a READ of both copies.
type Current struct {
	Which   int // of the copies; the other one is written next
	Version uint64
	Body    []byte // part of what was read
	// Whole is true if both copies are valid. One that is not may have been
	// read under a WRITE: the other is then current only if the lock was held
	// during the READ. A reader that does not hold the lock requires both.
	Whole bool
}

// DecodePair returns the current data of a slot from both its copies.
func (l *Layout) DecodePair(pair []byte) (Current, error) {
	half := l.CopyStride()
	va, da, ea := l.decodeCopy(pair[:half])
	vb, db, eb := l.decodeCopy(pair[half:])
	switch {
	case ea != nil && eb != nil:
		return Current{}, ErrRecord
	case ea != nil || eb == nil && vb > va:
		return Current{Which: 1, Version: vb, Body: db, Whole: ea == nil}, nil
	}
	return Current{Which: 0, Version: va, Body: da, Whole: eb == nil}, nil
}

// TrustPair is DecodePair for copies that are known to be valid.
func (l *Layout) TrustPair(pair []byte) Current {
	which, half := 0, l.CopyStride()
	va, vb := binary.LittleEndian.Uint64(pair), binary.LittleEndian.Uint64(pair[half:])
	if vb > va {
		which = 1
	}
	cur := pair[which*half:][:half]
	n := binary.LittleEndian.Uint32(cur[8:])
	return Current{Which: which, Version: max(va, vb), Body: cur[HeaderSize:][:n], Whole: true}
}

func (l *Layout) decodeCopy(src []byte) (version uint64, body []byte, err error) {
	version, body, err = Decode(src)
	if l.Records > 1 && len(body) != l.bodySize() {
		err = ErrRecord
	}
	return version, body, err
}

// Content is the version and the data of one record.
type Content struct {
	Version uint64
	Data    []byte
}

// Record returns a record in the body of a copy.
func (l *Layout) Record(c *Current, r int) (Content, error) {
	if l.Records == 1 {
		return Content{c.Version, c.Body}, nil
	}
	entry := c.Body[r*l.entryStride():][:l.entryStride()]
	n := binary.LittleEndian.Uint32(entry[8:])
	if uint64(n) > uint64(l.Size) {
		return Content{}, ErrRecord
	}
	return Content{binary.LittleEndian.Uint64(entry), entry[entryHead:][:n]}, nil
}

// Stage begins the next copy, in dst, with the body of the one that is current.
func (l *Layout) Stage(dst []byte, c *Current) {
	binary.LittleEndian.PutUint32(dst[8:], uint32(copy(dst[HeaderSize:], c.Body)))
}

// Put changes a record of a copy that was staged. It has one version more than in the
// copy that is current, however often it is put.
func (l *Layout) Put(dst []byte, r int, version uint64, data []byte) {
	if l.Records == 1 {
		binary.LittleEndian.PutUint32(dst[8:], uint32(copy(dst[HeaderSize:], data)))
		return
	}
	entry := dst[HeaderSize+r*l.entryStride():]
	binary.LittleEndian.PutUint64(entry, version)
	binary.LittleEndian.PutUint32(entry[8:], uint32(len(data)))
	copy(entry[entryHead:], data)
}

// Staged returns a copy under construction, to be read like one that is current.
func (l *Layout) Staged(dst []byte, version uint64) Current {
	return Current{Version: version, Body: dst[HeaderSize:][:binary.LittleEndian.Uint32(dst[8:])]}
}

// Seal ends the construction of a copy and returns its length.
func (l *Layout) Seal(dst []byte, version uint64) int {
	if l.Records > 1 {
		binary.LittleEndian.PutUint32(dst[8:], uint32(l.bodySize()))
	}
	return seal(dst, version, int(binary.LittleEndian.Uint32(dst[8:])))
}
