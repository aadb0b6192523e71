// Package mirror is the client's copy of the server's map, and what a client makes of the
// bytes that it READs. It has no I/O, clocks or locks.
package mirror

import (
	"errors"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// ErrGap says that deltas are missing: the map is empty, and a full sync is needed.
var ErrGap = errors.New("cache: deltas are missing; a full sync is needed")

// Config is what a mirror is made of.
type Config struct {
	// Budget is how many entries are kept; 0: all. Without room for all of them the mirror
	// learns from replies and buckets, and deltas only change what it has.
	Budget int
	// SampleEvery is how many hits stand for one access in a report; 0: 16.
	SampleEvery uint64
}

// Mirror is not for several goroutines.
type Mirror struct {
	cfg     Config
	epoch   uint32
	secret  wire.Secret
	table   wire.Where
	depth   int
	applied uint64
	live    bool // a full sync has begun
	alone   bool // and nothing follows: there are no entries
	whole   bool // and ended
	partial bool // something has no entry for want of room
	flushed uint64
	gone    gone
	entries slots
	hand    int // of the clock that chooses what goes
	reads   sections
	times   times
	grant   grant
	told    uint64 // the server's clock when it had told of all changes until then
	sample  sampler

	// Refused counts what READs and messages brought that was no use.
	Refused wire.Refusals
}

// New makes an empty mirror.
func New(cfg Config) *Mirror {
	if cfg.SampleEvery == 0 {
		cfg.SampleEvery = 16
	}
	m := &Mirror{cfg: cfg}
	m.sample.every = cfg.SampleEvery
	return m
}

// Epoch returns the epoch of the map; 0 without one.
func (m *Mirror) Epoch() uint32 { return m.epoch }

// Whole reports whether the map has all entries: with bounded staleness misses may be taken for true.
func (m *Mirror) Whole() bool { return m.whole && !m.partial }

// Alone reports whether the server sends neither entries nor changes: all keys are probed.
func (m *Mirror) Alone() bool { return m.alone }

// Len returns the number of entries.
func (m *Mirror) Len() int { return m.entries.n }

// Bytes returns the memory of the entries.
func (m *Mirror) Bytes() int { return len(m.entries.s) * slotBytes }

// Fingerprint returns that of a key.
func (m *Mirror) Fingerprint(key []byte) uint64 { return m.secret.Fingerprint(key) }

// Begin takes the beginning of a full sync.
func (m *Mirror) Begin(b *wire.Map) {
	m.lose()
	if m.epoch != b.Epoch {
		m.times, m.grant, m.told, m.flushed = times{}, grant{}, 0, 0
		m.reads.restart(b.Seq)
	}
	m.epoch, m.secret, m.applied, m.live, m.alone = b.Epoch, b.Secret, b.Seq, true, b.Alone
	m.table, m.depth = b.Table, int(b.Depth)
	m.gone.first = b.Seq + 1
	m.flushed = max(m.flushed, b.Flushed)
}

// lose empties the map.
func (m *Mirror) lose() {
	m.entries, m.live, m.whole, m.partial, m.hand = slots{}, false, false, false, 0
}

// Chunk takes a part of a full sync. It stands in the stream where the server made it.
func (m *Mirror) Chunk(c *wire.Chunk) error {
	switch {
	case !m.live || m.alone:
		return ErrGap
	case c.Epoch != m.epoch:
		return m.Refused.Note(wire.OtherEpoch)
	case c.Seq != m.applied:
		m.lose()
		return ErrGap
	}
	for i := range c.Entries {
		m.offer(c.Entries[i])
	}
	m.whole = m.whole || c.Last
	return nil
}

// Deltas takes changes. Those that were applied before are passed over.
func (m *Mirror) Deltas(d *wire.Deltas) error {
	switch {
	case !m.live || m.alone:
		return ErrGap
	case d.Epoch != m.epoch:
		return m.Refused.Note(wire.OtherEpoch)
	case d.First > m.applied+1:
		m.lose()
		return ErrGap
	}
	for i := range d.List {
		if d.First+uint64(i) == m.applied+1 {
			m.applied++
			m.apply(&d.List[i])
		}
	}
	if len(d.List) < wire.MaxEntries { // otherwise there may be more of them
		m.told = max(m.told, d.Clock)
	}
	return nil
}

func (m *Mirror) apply(d *wire.Delta) {
	f := d.Entry.Fingerprint
	m.gone.note(m.applied, 0)
	switch d.Change {
	case wire.ChangePut:
		m.gone.note(m.applied, d.Gone)
		if d.Gone != 0 {
			if d.Entry.Epoch == m.epoch && m.entries.replace(f, d.Gone, d.Entry.Version, uint64(d.Entry.Place)) {
				break
			}
			m.entries.remove(f, d.Gone)
		}
		m.offer(d.Entry)
	case wire.ChangeGone:
		m.gone.note(m.applied, d.Gone)
		m.entries.remove(f, d.Gone)
	case wire.ChangeFlush:
		m.entries.removeUpTo(d.Gone)
		m.flushed, m.partial = max(m.flushed, d.Gone), false // what has no entry is gone too
	case wire.ChangeTable:
		m.table, m.depth = d.Table()
	}
}

// offer puts an entry into the map if there is room.
func (m *Mirror) offer(e wire.Entry) {
	if m.cfg.Budget > 0 && m.entries.n >= m.cfg.Budget {
		m.partial = true
		return
	}
	m.put(e)
}

func (m *Mirror) put(e wire.Entry) {
	if !m.alone && e.Epoch == m.epoch && e.Version > m.flushed {
		m.entries.put(e.Fingerprint, e.Version, uint64(e.Place))
	}
}

// Learn takes the entry of a reply, which was true at the delta seq. One that is older
// than the map is not taken: what the deltas since have made of it is not known.
func (m *Mirror) Learn(e wire.Entry, seq uint64) {
	if !m.live || seq < m.applied || e.Epoch != m.epoch {
		return
	}
	m.learn(e)
}

// forgetOne makes room by the clock algorithm: what was used since the hand was there
// last gets another round.
func (m *Mirror) forgetOne() {
	m.partial = true
	for range 2 * len(m.entries.s) {
		m.hand = (m.hand + 1) % len(m.entries.s)
		s := &m.entries.s[m.hand]
		switch {
		case s.version == 0:
		case s.version&used != 0:
			s.version &^= used
		default:
			m.entries.removeAt(m.hand)
			return
		}
	}
}

// Lookup appends what may be the key's entries to found.
func (m *Mirror) Lookup(fingerprint uint64, found []wire.Entry) []wire.Entry {
	for i := m.entries.first(fingerprint); i >= 0; i = m.entries.next(i) {
		s := &m.entries.s[i]
		s.version |= used
		found = append(found, wire.Entry{Fingerprint: fingerprint, Version: s.version &^ used, Place: wire.Place(s.place), Epoch: m.epoch})
	}
	return found
}

// Forget removes an entry that was no use.
func (m *Mirror) Forget(e *wire.Entry) { m.entries.remove(e.Fingerprint, e.Version) }

// Verdict is what to do after a READ.
type Verdict uint8

const (
	Hit  Verdict = iota // the record is the result
	Next                // it is another key's: try the next entry
	Ask                 // the server has to say
)

// Judge looks at the bytes of a READ of e's place, which began at the local time now.
func (m *Mirror) Judge(src []byte, e *wire.Entry, key []byte, now int64) (wire.Record, Verdict) {
	r, err := wire.Validate(src, e, key)
	return r, m.JudgeRecord(&r, err, e, now)
}

// JudgeRecord is Judge for a caller that has validated the bytes already, which takes long when there are
// many and needs no mirror.
func (m *Mirror) JudgeRecord(r *wire.Record, err error, e *wire.Entry, now int64) Verdict {
	switch {
	case err == wire.OtherKey && r.Version == e.Version:
		m.Refused.Note(err)
		return Next
	case err != nil:
		m.Refused.Note(err)
		m.Forget(e)
		return Ask
	case e.Version <= m.flushed, r.Attrs&wire.AttrVivified != 0, r.Expiry != 0 && r.Expired(m.times.latest(now)):
		return Ask
	}
	m.sample.hit(e)
	return Hit
}
