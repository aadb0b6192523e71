package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func TestEntry(t *testing.T) {
	e := Entry{Fingerprint: 1, Version: 2, Place: PlaceOf(1<<15-1, MaxRegion-SlotUnit, 1000), Epoch: 4, Item: 5}
	var b [EntrySize]byte
	e.Put(b[:])
	require.Equal(t, e, GetEntry(b[:]))
	require.Equal(t, uint16(1<<15-1), e.Place.Region())
	require.Equal(t, MaxRegion-SlotUnit, e.Place.Offset())
	require.Equal(t, 1008, e.Place.Length(), "rounded up")
	require.Equal(t, MaxRecord, PlaceOf(3, 0, MaxRecord).Length())
	require.Equal(t, uint16(3), PlaceOf(3, 0, MaxRecord).Region())
	d := TableMoved(4, Where{1 << 63, 1<<32 - 1}, 9)
	at, depth := d.Table()
	require.Equal(t, Where{1 << 63, 1<<32 - 1}, at)
	require.Equal(t, 9, depth)
}

func TestBucket(t *testing.T) {
	b := Bucket(make([]byte, BucketSize))
	b.Reset(5, 17, 9)
	b.Set(2, Entry{Fingerprint: 40, Version: 1})
	b.Set(6, Entry{Fingerprint: 40, Version: 2})
	b.Set(0, Entry{Fingerprint: 41, Version: 3})
	found, err := ReadBucket(b, 5, 17, 9, 40, nil)
	require.NoError(t, err)
	require.Equal(t, []Entry{{Fingerprint: 40, Version: 1}, {Fingerprint: 40, Version: 2}}, found)

	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		_, err := ReadBucket(c, 5, 17, 9, 40, nil)
		require.Error(t, err, "byte %d", i)
	}
	_, err = ReadBucket(b[:BucketSize-1], 5, 17, 9, 40, nil)
	require.ErrorIs(t, err, Short)
	_, err = ReadBucket(b, 6, 17, 9, 40, nil)
	require.ErrorIs(t, err, Moved)
	_, err = ReadBucket(b, 5, 16, 9, 40, nil)
	require.ErrorIs(t, err, Moved)
	_, err = ReadBucket(b, 5, 17, 8, 40, nil)
	require.ErrorIs(t, err, OtherEpoch)
	for _, words := range [][2]int{{0, 64}, {64, 128}, {192, 256}} { // a cache line that a change came before
		c := bytes.Clone(b)
		c2 := Bucket(bytes.Clone(b))
		c2.Set(6, Entry{Fingerprint: 42, Version: 5})
		c2.Set(1, Entry{Fingerprint: 43, Version: 6})
		copy(c[words[0]:words[1]], c2[words[0]:])
		_, err = ReadBucket(c, 5, 17, 9, 40, nil)
		require.ErrorIs(t, err, Torn)
	}
	b.Move()
	_, err = ReadBucket(b, 5, 17, 9, 40, nil)
	require.ErrorIs(t, err, Moved)
}

// Doubling splits bucket i into 2i and 2i+1.
func TestBucketsOfDoubledTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 1000 {
		f, depth := rng.Uint64(), rng.IntN(MaxDepth)
		a, b := Buckets(f, depth)
		c, d := Buckets(f, depth+1)
		require.Equal(t, [2]uint32{a, b}, [2]uint32{c / 2, d / 2})
		require.Less(t, a, uint32(1)<<depth)
	}
}

// The vector is the first of those in the reference implementation of SipHash.
func TestFingerprint(t *testing.T) {
	s := Secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	require.Equal(t, uint64(0x726fdb47dd0e0e31), s.Fingerprint(nil))
}

// A bucket that is made in memory that had something else is empty, and whole.
func TestBucketInUsedMemory(t *testing.T) {
	b := Bucket(bytes.Repeat([]byte{0xa5}, BucketSize))
	b.Reset(5, 17, 9)
	found, err := ReadBucket(b, 5, 17, 9, 0xa5a5a5a5a5a5a5a5, nil)
	require.NoError(t, err)
	require.Empty(t, found)
}

// No two states of a bucket are alike, also when it has the same entries again: halves of them
// do not pass for a whole.
func TestBucketIsNeverAsBefore(t *testing.T) {
	b := Bucket(make([]byte, BucketSize))
	b.Reset(5, 17, 9)
	seen := map[string]bool{}
	for range 10 {
		for _, e := range []Entry{{Fingerprint: 40, Version: 1}, {}} {
			b.Set(3, e)
			require.False(t, seen[string(b)])
			seen[string(b)] = true
		}
	}
}

// Where the entries of a fingerprint are is part of the format: clients look there.
func TestBucketsAreFormat(t *testing.T) {
	for f, want := range map[uint64][2]uint32{
		0: {0, 0}, 1: {0, 4_171_070}, 1 << 63: {4_194_304, 6_279_839},
		0x0123456789abcdef: {37_282, 4_879_657}, ^uint64(0): {8_388_607, 3_204_163},
	} {
		a, b := Buckets(f, MaxDepth)
		require.Equal(t, want, [2]uint32{a, b}, "%#x", f)
	}
	a, b := Buckets(^uint64(0), 0)
	require.Zero(t, a|b, "a table of one bucket")
}

// A checksum that fits does not make a bucket of what is none, nor a map, a mode or a chunk of what says an odd thing.
func TestOddBucketsAndChunks(t *testing.T) {
	b := make(Bucket, BucketSize)
	b.Reset(5, 17, 9)
	binary.LittleEndian.PutUint32(b[bktMagic:], bucketMagic+1)
	b.seal()
	_, err := ReadBucket(b, 5, 17, 9, 40, nil)
	require.ErrorIs(t, err, Malformed)
	for at, odd := range map[int]byte{44: MaxDepth + 1, 45: 4} {
		m := AppendMap(nil, &Map{Epoch: 1})
		m[HeaderSize+at] = odd
		_, err = ReadMap(m)
		require.ErrorIs(t, err, Malformed)
	}
	_, err = ReadMode(AppendMode(nil, modes))
	require.ErrorIs(t, err, Malformed)
	c := AppendChunk(nil, &Chunk{Epoch: 1, Last: true})
	c[HeaderSize+20] = 2
	require.ErrorIs(t, new(Chunk).Read(c), Malformed)
}
