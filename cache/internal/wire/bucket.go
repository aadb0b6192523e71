package wire

import (
	"encoding/binary"
	"math/bits"

	"github.com/zeebo/xxh3"
)

// A bucket is what a client READs of the table when it has no entry itself.
const (
	BucketSize    = 256
	BucketEntries = (BucketSize - bucketHeader) / EntrySize

	bucketHeader = 32
	bucketMagic  = 0x746b6362
	bucketMoved  = 0x65766f6d

	bktChecksum = 0
	bktMagic    = 8 // from here on the checksum covers everything
	bktDepth    = 12
	bktIndex    = 16
	bktEpoch    = 20
	bktChanges  = 24
)

// Where is where the buckets of a table can be READ. The zero value is nowhere.
type Where struct {
	Addr uint64 // of the first
	Key  uint32 // of the memory, to the device
}

// MaxDepth is the logarithm of the number of buckets that fit in a region.
const MaxDepth = 23

// Bucket is a view of a bucket in the table's memory, for its owner.
type Bucket []byte

// Reset makes an empty bucket.
func (b Bucket) Reset(depth int, index, epoch uint32) {
	clear(b[:BucketSize])
	binary.LittleEndian.PutUint32(b[bktMagic:], bucketMagic)
	binary.LittleEndian.PutUint32(b[bktDepth:], uint32(depth))
	binary.LittleEndian.PutUint32(b[bktIndex:], index)
	binary.LittleEndian.PutUint32(b[bktEpoch:], epoch)
	b.seal()
}

// Entry returns the i-th entry; its version is 0 if there is none.
func (b Bucket) Entry(i int) Entry { return GetEntry(b[bucketHeader+i*EntrySize:]) }

// Set writes the i-th entry and the checksum behind it.
func (b Bucket) Set(i int, e Entry) {
	e.Put(b[bucketHeader+i*EntrySize:])
	binary.LittleEndian.PutUint64(b[bktChanges:], binary.LittleEndian.Uint64(b[bktChanges:])+1)
	b.seal()
}

// Move marks a bucket after its entries have moved to another table.
func (b Bucket) Move() {
	binary.LittleEndian.PutUint32(b[bktMagic:], bucketMoved)
	b.seal()
}

func (b Bucket) seal() { binary.LittleEndian.PutUint64(b[bktChecksum:], bucketSum(b)) }

// bucketSum has 64 bits, as a record's sum has: a torn bucket that passes could hide a record.
func bucketSum(b []byte) uint64 { return xxh3.Hash(b[bktMagic:BucketSize]) }

// ReadBucket checks the bytes of a READ of the bucket of this depth and number, and
// appends its entries of a fingerprint to found.
func ReadBucket(src []byte, depth int, index, epoch uint32, fingerprint uint64, found []Entry) ([]Entry, error) {
	if len(src) < BucketSize {
		return found, Short
	}
	le := binary.LittleEndian
	magic := le.Uint32(src[bktMagic:])
	switch {
	case le.Uint64(src[bktChecksum:]) != bucketSum(src):
		return found, Torn
	case magic != bucketMagic && magic != bucketMoved:
		return found, Malformed
	case le.Uint32(src[bktEpoch:]) != epoch:
		return found, OtherEpoch
	case magic == bucketMoved, le.Uint32(src[bktDepth:]) != uint32(depth), le.Uint32(src[bktIndex:]) != index:
		return found, Moved
	}
	for i := range BucketEntries {
		if e := Bucket(src).Entry(i); e.Version != 0 && e.Fingerprint == fingerprint {
			found = append(found, e)
		}
	}
	return found, nil
}

// second returns another hash of a fingerprint: the multiplication spreads its low bits, which number
// no bucket, over the high ones.
func second(fingerprint uint64) uint64 {
	return bits.RotateLeft64(fingerprint, 32) * 0x9e3779b97f4a7c15
}

// Buckets returns the numbers of the two buckets that a fingerprint may be in, of a table of 1<<depth.
// They can be the same.
func Buckets(fingerprint uint64, depth int) (uint32, uint32) {
	return uint32(fingerprint >> 1 >> (63 - depth)), uint32(second(fingerprint) >> 1 >> (63 - depth))
}
