package memory

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy fills the memory that it needs, whatever that had before, and no part of it is one.
func TestRecordBounds(t *testing.T) {
	for _, body := range []string{"", "hello"} {
		fresh, used := make([]byte, HeaderSize+len(body)), bytes.Repeat([]byte{0xff}, HeaderSize+len(body))
		require.Equal(t, len(fresh), Encode(fresh, 7, []byte(body)))
		Encode(used, 7, []byte(body))
		require.Equal(t, fresh, used)
		version, got, err := Decode(fresh)
		require.NoError(t, err)
		require.EqualValues(t, 7, version)
		require.Equal(t, body, string(got))
		for n := range fresh {
			_, _, err := Decode(fresh[:n])
			require.ErrorIs(t, err, ErrRecord, "%d bytes", n)
		}
	}
}

// Of two copies the one with the higher version is current, unless it is damaged; of equal
// ones the first.
func TestWhichCopyIsCurrent(t *testing.T) {
	for _, records := range []int{1, 2} {
		l := Layout{Slots: 1, Size: 16, Records: records}.WithDefaults()
		half := l.CopyStride()
		for _, v := range []struct {
			versions [2]uint64
			which    int
		}{{[2]uint64{0, 0}, 0}, {[2]uint64{1, 1}, 0}, {[2]uint64{1, 2}, 1}, {[2]uint64{2, 1}, 0}} {
			whole := make([]byte, l.PairSize())
			for k, version := range v.versions {
				c := whole[k*half:][:half]
				l.Put(c, records-1, version, []byte("abc")[:1+k])
				l.Seal(c, version)
			}
			for damaged, want := range map[int]Current{
				0b00: {Which: v.which, Whole: true},
				0b01: {Which: 1},
				0b10: {Which: 0},
			} {
				pair := bytes.Clone(whole)
				for k := range 2 {
					pair[k*half+HeaderSize] ^= byte(damaged >> k & 1)
				}
				got, err := l.DecodePair(pair)
				require.NoError(t, err)
				require.Equal(t, []any{want.Which, want.Whole, v.versions[want.Which]}, []any{got.Which, got.Whole, got.Version}, "%v, damaged %b", v.versions, damaged)
				now, err := l.Record(&got, records-1)
				require.NoError(t, err)
				require.Equal(t, "abc"[:1+want.Which], string(now.Data))
				if damaged == 0 {
					require.Equal(t, got, l.TrustPair(pair))
				}
			}
			clear(whole)
			_, err := l.DecodePair(whole)
			require.ErrorIs(t, err, ErrRecord)
		}
	}
}

// A copy of several records has room for all of them, and none is longer than records are.
func TestDamagedRecords(t *testing.T) {
	l := Layout{Slots: 1, Size: 13, Records: 2}.WithDefaults()
	half := l.CopyStride()
	pair := make([]byte, l.PairSize())
	for k := range 2 {
		c := pair[k*half:][:half]
		l.Put(c, 1, 5, []byte("thirteen byte"))
		l.Seal(c, uint64(k))
	}
	cur, err := l.DecodePair(pair)
	require.NoError(t, err)
	got, err := l.Record(&cur, 1)
	require.NoError(t, err)
	require.Equal(t, Content{5, []byte("thirteen byte")}, got)
	binary.LittleEndian.PutUint32(cur.Body[l.entryStride()+8:], 14)
	_, err = l.Record(&cur, 1)
	require.ErrorIs(t, err, ErrRecord)

	Encode(pair[half:], 9, make([]byte, l.bodySize()-8))
	cur, err = l.DecodePair(pair)
	require.NoError(t, err)
	require.Equal(t, 0, cur.Which)
	require.False(t, cur.Whole, "the other one has another layout's length")
}
