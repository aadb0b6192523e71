package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// tombstone is one of sample's record, which says where version 9 is, and the entry of it.
func tombstone() ([]byte, Entry, Entry) {
	r := sample()
	b := slot(r)
	e := Entry{Fingerprint: r.Fingerprint, Version: r.Version, Epoch: r.Epoch, Place: PlaceOf(0, 64, len(b))}
	next := Entry{Fingerprint: r.Fingerprint, Version: 9, Epoch: r.Epoch, Place: PlaceOf(3, 128, 1000)}
	Bury(b)
	Forward(b, next.Place, next.Version)
	return b, e, next
}

func TestForward(t *testing.T) {
	b, e, next := tombstone()
	_, err := ReadRecord(b)
	require.ErrorIs(t, err, Dead)
	got, ok := Forwarded(b, &e)
	require.True(t, ok)
	require.Equal(t, next, got)
	got, ok = Forwarded(b[:RecordHeader], &e)
	require.True(t, ok, "the header is enough")
	require.Equal(t, next, got)

	for i := range RecordHeader {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			_, ok := Forwarded(c, &e)
			require.False(t, ok, "byte %d bit %d", i, bit)
		}
	}
	for n := range RecordHeader {
		_, ok := Forwarded(b[:n], &e)
		require.False(t, ok, n)
	}
}

// Only the tombstone of the entry's own record says what came in its place.
func TestForwardIsOfOneRecord(t *testing.T) {
	b, e, _ := tombstone()
	for what, other := range map[string]Entry{
		"version":     {Fingerprint: e.Fingerprint, Version: e.Version - 1, Epoch: e.Epoch},
		"epoch":       {Fingerprint: e.Fingerprint, Version: e.Version, Epoch: e.Epoch + 1},
		"fingerprint": {Fingerprint: e.Fingerprint + 1, Version: e.Version, Epoch: e.Epoch},
	} {
		_, ok := Forwarded(b, &other)
		require.False(t, ok, what)
	}
	for _, version := range []uint64{0, e.Version - 1, e.Version} { // a hostile server's, which would have clients go in circles
		Forward(b, e.Place, version)
		_, ok := Forwarded(b, &e)
		require.False(t, ok, version)
	}
}

// A tombstone without a forward says nothing, also that of a record without key and value, nor does a live
// record whatever its header has.
func TestNoForward(t *testing.T) {
	for _, r := range []Record{sample(), {Version: 7, CAS: 1 << 40, Expiry: 9, Epoch: 11}} {
		b := slot(r)
		e := Entry{Fingerprint: r.Fingerprint, Version: r.Version, Epoch: r.Epoch}
		_, ok := Forwarded(b, &e)
		require.False(t, ok)
		Bury(b)
		_, ok = Forwarded(b, &e)
		require.False(t, ok)
		Forward(b, 5, 9)
		Publish(b)
		_, ok = Forwarded(b, &e)
		require.False(t, ok, "it is alive")
		_, err := ReadRecord(b)
		require.ErrorIs(t, err, Torn, "a READ that saw it alive and then the forward")
		PutRecord(b, &r)
		_, ok = Forwarded(b, &e)
		require.False(t, ok, "the slot is another record's")
	}
}

// Whatever part of a forward a READ sees, it takes none for it.
func TestPartOfAForward(t *testing.T) {
	r := sample()
	before := slot(r)
	Bury(before)
	after, e, _ := tombstone()
	for mask := range 1 << 8 {
		c := bytes.Clone(before)
		for word := range 8 {
			if mask>>word&1 == 1 {
				copy(c[8*word:8*word+8], after[8*word:])
			}
		}
		_, ok := Forwarded(c, &e)
		require.Equal(t, bytes.Equal(c[:RecordHeader], after[:RecordHeader]), ok, mask)
	}
	require.Equal(t, uint64(9), binary.LittleEndian.Uint64(after[fwdVersion:]))
}

func FuzzForwarded(f *testing.F) {
	b, e, _ := tombstone()
	f.Add(b, e.Version)
	f.Fuzz(func(t *testing.T, src []byte, version uint64) {
		e := Entry{Version: version}
		if next, ok := Forwarded(src, &e); ok && next.Version <= version {
			t.Fatal("in circles")
		}
	})
}
