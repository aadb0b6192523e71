package cache

import (
	"context"
	"errors"
	"slices"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Result is what [Client.GetMulti] has for one key.
type Result struct {
	Item
	Err error // Get's; with one the value is empty
}

// GetMulti answers the records of many keys, in the order of the keys, each with an error
// of its own. READs are posted together, up to 32 by one doorbell, and the server is asked
// at once for everything that needs it.
//
// Results go into the slice that is passed, which may be nil, and values into the memory
// that its values had: who passes the results of the last call, and needs them no more, has
// nothing allocated for hits.
func (c *Client) GetMulti(ctx context.Context, keys [][]byte, into []Result) []Result {
	into = slices.Grow(into[:0], len(keys))[:len(keys)]
	for i, key := range keys {
		into[i] = Result{Item: Item{Value: into[i].Value[:0]}, Err: errPending}
		if err := checkKey(key); err != nil {
			into[i].Err = opError("get", key, err)
		}
	}
	for {
		s, err := c.session(ctx)
		if err == nil {
			err = s.getMulti(ctx, keys, into)
		}
		if errors.Is(err, errEnded) {
			continue // there will be another one, for what has no answer yet
		}
		for i := range into {
			if into[i].Err == errPending {
				into[i].Err = opError("get", keys[i], err)
			}
		}
		return into
	}
}

// errPending is the error of a key that has no answer yet.
var errPending = errors.New("no answer yet")

// getMulti answers what is pending: by READs, and by calls what no READ answers.
func (s *session) getMulti(ctx context.Context, keys [][]byte, into []Result) (err error) {
	for at := 0; s.by != TCP && at < len(keys) && err == nil; {
		at, err = s.readMulti(ctx, keys, into, at)
	}
	if err == nil {
		err = s.askMulti(ctx, keys, into)
	}
	return err
}

const (
	multiReads = 32      // that are posted together
	multiBytes = 1 << 20 // that they READ, unless one is longer
)

// multi are READs that are posted together.
type multi struct {
	n     int
	reads [multiReads]planned
	build func(*verbs.List)
	next  *multi
}

type planned struct {
	key    int
	entry  wire.Entry
	b      *buffer
	record wire.Record
	err    error
}

// multi is one that is free. The mutex is held.
func (s *session) multi() *multi {
	if m := s.multis; m != nil {
		s.multis, m.next = m.next, nil
		return m
	}
	m := &multi{}
	m.build = func(l *verbs.List) {
		for i := range m.reads[:m.n] {
			p := &m.reads[i]
			l.Read(s.regions[p.entry.Place.Region()].At(uint64(p.entry.Place.Offset())), p.b.mr.SGE(p.b.off, p.entry.Place.Length()))
		}
	}
	return m
}

// readMulti READs the records of pending keys from the one at a place on, and answers how
// far it got.
func (s *session) readMulti(ctx context.Context, keys [][]byte, into []Result, at int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, ok := s.enter()
	if !ok {
		return at, errEnded
	}
	m := s.multi()
	defer func() {
		for i := range m.reads[:m.n] {
			s.release(m.reads[i].b)
			m.reads[i] = planned{}
		}
		m.n, m.next, s.multis = 0, s.multis, m
		s.leave(sec)
	}()
	now := s.nearClock()
	for bytes := 0; at < len(keys) && m.n < multiReads && bytes < multiBytes; at++ {
		if into[at].Err == errPending {
			bytes += s.plan(m, keys, into, at, now)
		}
	}
	if m.n == 0 {
		return at, nil
	}
	s.mu.Unlock()
	err := s.read.Do(ctx, m.build)
	for i := range m.reads[:m.n] {
		if p := &m.reads[i]; err == nil {
			if p.record, p.err = wire.Validate(p.b.bytes(p.entry.Place.Length()), &p.entry, keys[p.key]); p.err == nil {
				r := &into[p.key]
				r.Value, r.Flags, r.CAS = append(r.Value[:0], p.record.Value...), p.record.Flags, p.record.CAS
			}
		}
	}
	if err != nil {
		err = s.failed(ctx, err)
	}
	now = s.clock()
	s.mu.Lock()
	if err != nil {
		return at, err
	}
	n := &s.c.count
	n.reads.Add(uint64(m.n))
	for i := range m.reads[:m.n] {
		p := &m.reads[i]
		if s.weigh(&p.record, p.err, &p.entry, now) == mirror.Hit {
			into[p.key].Err = nil
			n.hits.Add(1)
			continue
		}
		n.refused.Add(1)
		into[p.key].Item = Item{Value: into[p.key].Value[:0]}
	}
	return at, nil
}

// plan plans the READ of a key's record, and answers how many bytes it has. Keys that are
// not in the map, and all but the first candidate of those that are there several times,
// are the server's to answer. The mutex is held, but while memory is registered.
func (s *session) plan(m *multi, keys [][]byte, into []Result, at int, now int64) int {
	var room [4]wire.Entry
	fingerprint := s.m.Fingerprint(keys[at])
	if s.near != nil {
		if k := s.copied(fingerprint, keys[at], now); k != nil {
			r := &into[at]
			r.Value, r.Flags, r.CAS, r.Err = append(r.Value[:0], k.it.Value...), k.it.Flags, k.it.CAS, nil
			return 0
		}
	}
	found := s.m.Lookup(fingerprint, room[:0])
	if len(found) == 0 {
		s.c.count.confirmed.Add(1)
		return 0
	}
	e := &found[0]
	n := e.Place.Length()
	if int(e.Place.Region()) >= len(s.regions) || n > s.c.cfg.MaxRecord {
		return 0
	}
	b, err := s.buffer(n)
	if err != nil { // no memory can be registered: there is another way
		return 0
	}
	m.reads[m.n] = planned{key: at, entry: *e, b: b}
	m.n++
	return n
}

// askMulti has the server say what is still pending: all calls are under way together.
func (s *session) askMulti(ctx context.Context, keys [][]byte, into []Result) error {
	type asked struct {
		key int
		c   *call
	}
	var all []asked
	var first error
	for i, key := range keys {
		if into[i].Err != errPending {
			continue
		}
		c, err := s.start(ctx, &wire.Request{Op: wire.OpGet, Key: key})
		if err != nil {
			first = err
			break
		}
		all = append(all, asked{i, c})
	}
	for _, q := range all {
		a, err := s.wait(ctx, q.c)
		if err == nil {
			err = outcome(a.Status)
		}
		r := &into[q.key]
		switch {
		case err == nil:
			r.Value, r.Flags, r.CAS, r.Err = append(r.Value[:0], a.Value...), a.Flags, a.CAS, nil
		case a.Status == wire.NotFound:
			s.c.count.misses.Add(1)
			fallthrough
		case a.Status != 0 && !errors.Is(err, errEnded):
			r.Err = opError("get", keys[q.key], err)
		case first == nil:
			first = err
		}
	}
	return first
}
