package mirror

import "github.com/goverbs/goverbs/cache/internal/wire"

// A near cache has copies of records. What the map says of a record, a copy needs too: as
// long as the entry is there, no change of the key was heard of. That may be because none
// was told, so copies are good only while the server was heard lately.

// Age returns at least how long ago by the server's clock, in ms, the map was what the server's was,
// at the local time now. Changes of the ms itself may be missing.
func (m *Mirror) Age(now int64) uint64 {
	latest := m.times.latest(now)
	return latest - min(m.told, latest)
}

// Holds reports whether a copy of the record that e points at, with that expiry, may be used at the
// local time now: the record was not changed more than bound ms ago. If so, that counts as an access.
func (m *Mirror) Holds(e *wire.Entry, expiry uint64, now int64, bound uint64) bool {
	latest := m.times.latest(now)
	if m.told == 0 || latest >= m.told+bound || expiry != 0 && expiry <= latest {
		return false
	}
	i := m.entries.find(e.Fingerprint, e.Version)
	if i < 0 {
		return false
	}
	m.entries.s[i].version |= used
	m.sample.hit(e)
	return true
}

// Has reports whether an entry is in the map.
func (m *Mirror) Has(e *wire.Entry) bool { return m.entries.find(e.Fingerprint, e.Version) >= 0 }
