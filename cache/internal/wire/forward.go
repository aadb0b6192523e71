package wire

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// A tombstone can say where the record is that came in the place of its own. That lies where CAS
// number and expiry were, which a tombstone does not need, under a checksum of its own in the place of
// the record's. Version, epoch and fingerprint stay: they say which record the tombstone is of.
const (
	fwdPlace   = recCAS
	fwdVersion = recExpiry
)

// forwardSeed keeps the checksum of a forward apart from that of a record: otherwise both would be the same
// of a record without key and value.
const forwardSeed = 0x6672776472647377

// forwardSum covers the header from the version on.
func forwardSum(rec []byte) uint64 { return xxh3.HashSeed(rec[recVersion:RecordHeader], forwardSeed) }

// Forward makes a tombstone say where the record is that came in its place: after [Bury], since the
// bytes are no record's any more. A READ that sees only a part of it finds a checksum that does not
// fit.
func Forward(rec []byte, next Place, version uint64) {
	binary.LittleEndian.PutUint64(rec[fwdPlace:], uint64(next))
	binary.LittleEndian.PutUint64(rec[fwdVersion:], version)
	binary.LittleEndian.PutUint64(rec[recChecksum:], forwardSum(rec))
}

// Forwarded returns the entry of the record that came in the place of e's, if the bytes of a READ are
// the tombstone of that and say so. What it points at is to be validated like what any entry does: it
// may be a tombstone by now. Versions only rise, so that going from one to the next comes to an end.
func Forwarded(src []byte, e *Entry) (Entry, bool) {
	if len(src) < RecordHeader {
		return Entry{}, false
	}
	le := binary.LittleEndian
	next := Entry{Fingerprint: e.Fingerprint, Version: le.Uint64(src[fwdVersion:]), Place: Place(le.Uint64(src[fwdPlace:])), Epoch: e.Epoch}
	switch {
	case le.Uint64(src[recState:]) != stateDead, le.Uint64(src[recChecksum:]) != forwardSum(src),
		le.Uint64(src[recVersion:]) != e.Version, le.Uint32(src[recEpoch:]) != e.Epoch,
		le.Uint64(src[recFingerprint:]) != e.Fingerprint, next.Version <= e.Version:
		return Entry{}, false
	}
	return next, true
}
