package cache

import (
	"context"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const (
	multiReads = 32      // that are posted together
	multiBytes = 1 << 20 // that they READ, unless one is longer
)

// multi holds keys for READs that are posted together, in rounds. A key with an entry in the map needs one
// round, and one more for each tombstone that leads on. A key that is looked up in the server's map, since the
// client's has no entry or one of a record that is gone, needs one round for each bucket and one for the
// record. A round is one doorbell, whatever it READs.
type multi struct {
	n        int
	keys     [multiReads]planned
	records  [multiReads]wire.Record  // that were READ in this round, of the keys at the same places
	probes   [multiReads]mirror.Probe // by the places of their keys in the first round
	shared   *buffer                  // of all keys of the round; nil: each has one of its own
	lo, hi   int                      // the keys that list and requests are for
	wrs      []verbs.WR               // room for list
	local    [multiReads]verbs.SGE
	requests func() []dc.Request    // returns their READs for an initiator, instead
	room     [multiReads]dc.Request // for requests
	next     *multi
}

// planned is the next READ of a key: of the record that entry points at, or, while it is looked
// for, of a bucket.
type planned struct {
	key    int // number
	place  int // of its probe
	entry  wire.Entry
	probed bool   // entry, if there is one, is of a bucket
	since  uint64 // what had been applied when that, or the tombstone that led to entry, was READ
	led    int    // tombstones that led to entry, one to the next
	mark   uint32 // before the READ
	looks  bool   // for an entry
	bucket int    // that it looks into
	torn   int    // how often that was torn
	b      *buffer
	off    int // in b
	err    error
}

// memory returns what is READ.
func (p *planned) memory() []byte { return p.b.mr.Bytes()[p.b.off+p.off:][:p.size()] }

// local returns the same memory for a work request.
func (p *planned) local() verbs.SGE { return p.b.mr.SGE(p.b.off+p.off, p.size()) }

// size returns how many bytes are READ.
func (p *planned) size() int {
	if p.looks {
		return wire.BucketSize
	}
	return p.entry.Place.Length()
}

// multi returns a free multi, or a new one. mu must be held.
func (s *session) multi() *multi {
	if m := s.multis; m != nil {
		s.multis, m.next = m.next, nil
		return m
	}
	m := &multi{}
	for i := range m.room {
		m.room[i] = readRequest(verbs.Remote{}, verbs.SGE{})
	}
	m.requests = func() []dc.Request {
		n := 0
		for i := range m.keys[m.lo:m.hi] {
			if p := &m.keys[m.lo+i]; p.b != nil {
				m.room[n].Remote, m.room[n].Local = s.remote(m, p), p.local()
				n++
			}
		}
		return m.room[:n]
	}
	return m
}

// list returns the READs of the keys that have memory; those of the others are of a later round.
func (s *session) list(m *multi) []verbs.WR {
	m.wrs = m.wrs[:0]
	for i := m.lo; i < m.hi; i++ {
		if p := &m.keys[i]; p.b != nil {
			m.local[i] = p.local()
			m.wrs = append(m.wrs, verbs.ReadWR(s.remote(m, p), m.local[i:i+1]...))
		}
	}
	return m.wrs
}

// remote returns the memory that a key's READ is of.
func (s *session) remote(m *multi, p *planned) verbs.Remote {
	if p.looks {
		rkey, addr := m.probes[p.place].At(p.bucket)
		return verbs.Remote{Addr: addr, RKey: rkey}
	}
	return s.regions[p.entry.Place.Region()].At(uint64(p.entry.Place.Offset()))
}

// readMulti READs the records of pending keys from index at on, and returns the index that
// it got to.
func (s *session) readMulti(ctx context.Context, keys [][]byte, into []Result, at int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, ok := s.enter()
	if !ok {
		return at, errEnded
	}
	m, since := s.multi(), s.m.Applied()
	var err error // of READs
	defer func() {
		for i := range m.keys[:m.n] { // after an error: the next call goes on from there
			s.m.Adopt(since, &m.keys[i].entry)
		}
		s.giveUp(m, err)
		m.next, s.multis = s.multis, m
		s.leaveAfter(err, sec)
	}()
	now := s.nearClock()
	for ; at < len(keys) && m.n < multiReads; at++ {
		if into[at].Err == errPending {
			s.plan(m, keys, into, at, now)
		}
	}
	for m.n > 0 {
		if err = s.round(ctx, m, keys, into); err == nil {
			continue
		}
		s.mu.Unlock()
		cause := s.failed(ctx, err)
		s.mu.Lock()
		if cause != nil {
			return at, cause
		}
		break // the server is to be asked
	}
	return at, nil
}

// plan plans the READ of a key's record, or of its first bucket if the map is not whole. Other
// keys that are not in the map, and all but the first candidate of those that are there
// several times, are left to calls. mu must be held.
func (s *session) plan(m *multi, keys [][]byte, into []Result, at int, now int64) {
	var room [4]wire.Entry
	fingerprint := s.m.Fingerprint(keys[at])
	if s.near != nil {
		if k := s.copied(fingerprint, keys[at], now); k != nil {
			r := &into[at]
			r.Value, r.Flags, r.CAS, r.Err = append(r.Value[:0], k.it.Value...), k.it.Flags, k.it.CAS, nil
			return
		}
	}
	p := &m.keys[m.n]
	*p = planned{key: at, place: m.n}
	found := s.m.Lookup(fingerprint, room[:0])
	if len(found) > 0 {
		p.entry = found[0]
	} else {
		s.c.count.confirmed.Add(1)
		if s.m.Whole() {
			return
		}
		if m.probes[p.place], p.looks = s.m.Probe(fingerprint); !p.looks {
			return
		}
	}
	if p.looks || s.readable(&p.entry) {
		m.n++
	}
}

// readable reports whether a client may READ what an entry points at.
func (s *session) readable(e *wire.Entry) bool {
	return int(e.Place.Region()) < len(s.regions) && e.Place.Length() <= s.c.cfg.MaxRecord
}

// round posts the READs of as many keys as go together, and processes them: keys that need no
// other READ leave m, and are left to calls if they have no result. mu must be held; it is
// released during the READs.
func (s *session) round(ctx context.Context, m *multi, keys [][]byte, into []Result) error {
	if s.furnish(ctx, m) == 0 {
		m.n = 0 // no memory can be registered: there is another way
		return nil
	}
	s.mu.Unlock()
	err := s.readRound(ctx, m)
	for i := range m.keys[:m.n] {
		p := &m.keys[i]
		if p.b == nil || p.looks || err != nil {
			continue
		}
		record := &m.records[i]
		if p.err = record.Validate(p.memory(), &p.entry, keys[p.key]); p.err == nil {
			r := &into[p.key]
			r.Value, r.Flags, r.CAS = append(r.Value[:0], record.Value...), record.Flags, record.CAS
		}
	}
	now := s.clock()
	s.mu.Lock()
	if err != nil {
		return err
	}
	left := 0
	for i := range m.keys[:m.n] {
		p := &m.keys[i]
		if b := p.b; b != nil {
			more := s.came(m, i, keys, into, now)
			m.records[i].Key, m.records[i].Value = nil, nil // their memory may be freed
			if m.shared == nil {
				s.release(b)
			}
			if p.b = nil; !more {
				continue
			}
		}
		m.keys[left] = *p
		left++
	}
	m.n = left
	if m.shared != nil {
		s.release(m.shared)
		m.shared = nil
	}
	return nil
}

// giveUp leaves all remaining keys to calls, after READs that ended with err. mu must be
// held.
func (s *session) giveUp(m *multi, err error) {
	for i := range m.keys[:m.n] {
		if b := m.keys[i].b; b != nil && b != m.shared {
			s.releaseAfter(err, b)
		}
	}
	if m.shared != nil {
		s.releaseAfter(err, m.shared)
	}
	m.n, m.shared = 0, nil
}

// marked notes the mark of a key whose READ is about to begin. The session's mu must be held.
func (p *planned) marked(s *session) {
	if !p.looks {
		p.mark = s.mark(p.entry.Fingerprint)
	}
}

// came processes the READ of the i-th key, and reports whether it needs another one. mu must be held.
func (s *session) came(m *multi, i int, keys [][]byte, into []Result, now int64) (more bool) {
	n, p := &s.c.count, &m.keys[i]
	if p.looks {
		return s.looked(m, p, keys, into)
	}
	if s.judge(&m.records[i], p.err, &p.entry, now, p.mark) != mirror.Hit {
		n.refused.Add(1)
		into[p.key].Item = Item{Value: into[p.key].Value[:0]}
		if p.err == wire.Dead && p.led < maxForwards {
			if next, ok := wire.Forwarded(p.memory(), &p.entry); ok {
				p.entry, p.since, p.led = next, s.m.Applied(), p.led+1
				return s.readable(&p.entry)
			}
		}
		if p.err == wire.Dead && !p.probed { // its bucket says what became of it
			m.probes[p.place], p.looks = s.m.Probe(p.entry.Fingerprint)
		}
		return p.looks
	}
	into[p.key].Err = nil
	n.hits.Add(1)
	switch {
	case p.led > 0:
		n.forwarded.Add(1)
	case p.probed:
		n.probes.Add(1)
	default:
		return false
	}
	s.m.Adopt(p.since, &p.entry)
	return false
}

// looked processes a bucket, and reports whether the key needs another READ: of the bucket
// again, of its other bucket, or of the record. Several entries of one fingerprint are left
// to a call.
func (s *session) looked(m *multi, p *planned, keys [][]byte, into []Result) (more bool) {
	var room [4]wire.Entry
	n, probe := &s.c.count, &m.probes[p.place]
	found, refusal := probe.Read(p.memory(), p.bucket, room[:0])
	switch {
	case refusal == wire.Torn && p.torn+1 < tornBuckets:
		p.torn++
		return true
	case refusal != nil:
		n.refused.Add(1)
		return false
	case len(found) > 0:
		p.entry, p.looks, p.probed, p.since, p.led = found[0], false, true, probe.Since(), 0
		return len(found) == 1 && s.readable(&p.entry)
	case p.bucket+1 < probe.Buckets():
		p.bucket, p.torn = p.bucket+1, 0
		return true
	}
	if s.placed { // the record may be at another server
		return false
	}
	n.probes.Add(1)
	n.misses.Add(1)
	into[p.key].Err = opError("get", keys[p.key], ErrNotFound)
	return false
}
