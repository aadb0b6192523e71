package store

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

// spec is what package kv says of requests, on a map: without memory that ends, records that move, or clients
// that READ.
type spec struct {
	now, cas, flushAt uint64
	records           map[string]*specRecord
	stats             Stats
	events            kv.Events
}

type specRecord struct {
	value                       string
	flags                       uint32
	cas, expiry, accessed       uint64
	stale, won, binary, fetched bool
	vivified                    bool // a get has made it, and nothing was stored since
}

func (m *spec) advance(now uint64) {
	m.now = max(m.now, now)
	if m.flushAt != 0 && m.flushAt <= m.now {
		m.flush()
	}
}

func (m *spec) flush() {
	m.flushAt = 0
	m.stats.Flushes++
	clear(m.records)
}

// expire removes a record that is over.
func (m *spec) expire(key string) {
	if r := m.records[key]; r != nil && r.expiry != 0 && r.expiry <= m.now {
		m.events.Expired++
		if !r.fetched {
			m.events.ExpiredUnfetched++
		}
		delete(m.records, key)
	}
}

func (m *spec) until(t int64) uint64 {
	if t < 0 {
		return max(m.now, 1)
	} else if t == 0 {
		return 0
	}
	return m.now + uint64(t)
}

func (m *spec) next() uint64 { m.cas++; return m.cas }

func (m *spec) do(now uint64, q kv.Request) (a kv.Reply) {
	m.advance(now)
	key, want := string(q.Key), func(bit uint32) bool { return q.Want&bit != 0 }
	if q.Op == kv.OpFlush {
		if want(kv.WantIfLater) && q.Expiry > 0 {
			m.flushAt = m.until(q.Expiry)
		} else {
			m.flush()
		}
		return kv.Reply{Status: kv.OK}
	}
	m.expire(key)
	r := m.records[key]
	// put replaces the record, whose access it is.
	put := func(n specRecord) {
		n.accessed = m.now
		a.Bits &^= kv.ReplyVivified
		m.records[key], r = &n, &n
		a.Status, a.Flags, a.CAS, a.Expiry = kv.OK, n.flags, n.cas, n.expiry
		if n.binary {
			a.Bits |= kv.ReplyBinary
		}
	}
	fail := func(s kv.Status) kv.Reply { a.Status = s; return a }
	compares := want(kv.WantCompare)
	passed := r != nil && r.vivified && want(kv.WantStored) && !(compares && q.CAS == r.cas)
	switch {
	case passed && q.Op == kv.OpDelete && !compares:
		delete(m.records, key)
		return fail(kv.NotFound)
	case passed:
		a.Bits, a.CAS, r = kv.ReplyVivified, r.cas, nil
	}
	switch q.Op {
	case kv.OpGet:
		m.stats.Gets++
		if r == nil {
			if !want(kv.WantVivify) || passed {
				return fail(kv.NotFound)
			}
			a.Bits = kv.ReplyWon | kv.ReplyCreated
			m.stats.Stored++
			put(specRecord{cas: m.next(), expiry: m.until(q.Vivify), won: true, vivified: true, binary: want(kv.WantBinary), fetched: !want(kv.WantNoBump)})
			return a
		}
		m.stats.Hits++
		if want(kv.WantTouch) {
			m.events.Touches++
		} else {
			m.events.Hits++
		}
		before, n := *r, *r
		if want(kv.WantTouch) {
			n.expiry = m.until(q.Expiry)
		}
		soon := false
		if want(kv.WantRecache) && n.expiry != 0 {
			left := int64(n.expiry) - int64(m.now)
			soon = (left+999)/1000*1000 < q.Recache
		}
		if !n.won && (soon || want(kv.WantWin) && n.stale) {
			n.won = true
			a.Bits |= kv.ReplyWon
		}
		put(n)
		if r.accessed = before.accessed; !want(kv.WantNoBump) {
			r.accessed, r.fetched = m.now, true
		}
		for bit, set := range map[uint16]bool{kv.ReplyFetched: before.fetched, kv.ReplySent: before.won, kv.ReplyStale: before.stale} {
			if set {
				a.Bits |= bit
			}
		}
		a.Idle = m.now - before.accessed
		if !want(kv.WantNoValue) {
			a.Value = []byte(n.value)
		}
		return a
	case kv.OpDelete:
		switch {
		case r == nil:
			return fail(kv.NotFound)
		case compares && q.CAS != r.cas:
			return fail(kv.Exists)
		case !want(kv.WantStale):
			m.events.Deletes++
			delete(m.records, key)
			return fail(kv.OK)
		}
		n, accessed := *r, r.accessed
		if want(kv.WantTouch) {
			n.expiry = m.until(q.Expiry)
		}
		n.stale, n.won, n.cas = true, false, m.next()
		put(n)
		r.accessed = accessed
		return a
	case kv.OpArith:
		return m.arith(q, r, put, fail)
	}
	m.stats.Sets++
	n := specRecord{value: string(q.Value), flags: q.Flags, expiry: m.until(q.Expiry), binary: want(kv.WantBinary)}
	mismatch := func() kv.Reply { m.events.CASMismatches++; return fail(kv.Exists) }
	switch q.Op {
	case kv.OpAdd:
		if r != nil {
			r.accessed = m.now
			return fail(kv.NotStored)
		}
	case kv.OpSet, kv.OpReplace:
		switch {
		case r == nil && compares:
			return fail(kv.NotFound)
		case r == nil && q.Op == kv.OpReplace:
			return fail(kv.NotStored)
		case compares && want(kv.WantStale) && q.CAS != 0 && q.CAS < r.cas:
			n.expiry, n.stale, n.won = r.expiry, true, r.won
		case compares && (q.CAS != r.cas):
			return mismatch()
		}
	default:
		if r == nil {
			return fail(kv.NotStored)
		}
		if compares && q.CAS != 0 && q.CAS != r.cas {
			return mismatch()
		}
		n.flags, n.expiry, n.binary = r.flags, r.expiry, r.binary
		if n.value = r.value + string(q.Value); q.Op == kv.OpPrepend {
			n.value = string(q.Value) + r.value
		}
	}
	m.stats.Stored++
	m.events.Sets++
	if compares {
		m.events.CASHits++
	}
	n.cas = m.next()
	put(n)
	return a
}

func (m *spec) arith(q kv.Request, r *specRecord, put func(specRecord), fail func(kv.Status) kv.Reply) kv.Reply {
	if r == nil {
		if q.Want&kv.WantVivify == 0 {
			return fail(kv.NotFound)
		}
		m.stats.Stored++
		put(specRecord{value: strconv.FormatUint(q.Initial, 10), cas: m.next(), expiry: m.until(q.Vivify), binary: q.Want&kv.WantBinary != 0})
		a := fail(kv.OK)
		a.Bits |= kv.ReplyCreated
		a.Number = q.Initial
		return a
	}
	if r.value != "" && q.Want&kv.WantCompare != 0 && q.CAS != 0 && q.CAS != r.cas {
		return fail(kv.Exists)
	}
	digits, _, _ := strings.Cut(r.value, " ") // those after which a shorter number left spaces
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return fail(kv.NotNumeric)
	}
	if q.Want&kv.WantDecr == 0 {
		m.events.Incrs++
		number += q.Delta
	} else {
		m.events.Decrs++
		number -= min(q.Delta, number)
	}
	n := *r
	if n.value = strconv.FormatUint(number, 10); len(n.value) > len(r.value) {
		n.fetched, n.stale, n.won, n.vivified = false, false, false, false
	}
	n.value += strings.Repeat(" ", max(0, len(r.value)-len(n.value)))
	if q.Want&kv.WantTouch != 0 {
		n.expiry = m.until(q.Expiry)
	}
	n.cas = m.next()
	put(n)
	a := fail(kv.OK)
	a.Number = number
	return a
}

// restarted returns a store that continues from a snapshot that was made passed ms ago, and makes the specification do the same.
func restarted(t *testing.T, s *Store, m *spec, passed uint64) *Store {
	m.advance(m.now + passed/2)
	var items []snapshot.Item
	require.NoError(t, s.Save(m.now, func(it *snapshot.Item) error {
		c := *it
		c.Key, c.Value = slices.Clone(it.Key), slices.Clone(it.Value)
		items = append(items, c)
		return nil
	}))
	for key := range maps.Clone(m.records) {
		m.expire(key)
	}
	require.Len(t, items, len(m.records))
	for i := 1; i < len(items); i++ {
		require.LessOrEqual(t, m.records[string(items[i-1].Key)].accessed, m.records[string(items[i].Key)].accessed)
	}
	saved := s.Head(m.now, 0)
	next := newStore(t, 4, Config{})
	m.stats, m.events = Stats{}, kv.Events{}
	ok := next.Resume(m.now, &saved, passed)
	require.Equal(t, m.flushAt == 0 || m.flushAt > m.now+passed, ok)
	switch {
	case !ok:
		clear(m.records)
		m.flushAt = 0
		return next
	case m.flushAt != 0:
		m.flushAt -= passed
	}
	m.advance(m.now + 1)
	for _, it := range items {
		key := string(it.Key)
		r, want := m.records[key], kv.OK
		if r.expiry != 0 && r.expiry <= m.now-1+passed {
			delete(m.records, key)
			want = kv.NotFound
		} else if r.expiry != 0 {
			r.expiry = r.expiry - passed + 1
		}
		r.accessed = m.now
		require.Equal(t, want, next.Restore(m.now, &it, passed))
	}
	return next
}

func randomRequest(rnd *rand.Rand, m *spec) kv.Request {
	pick := func(all ...int64) int64 { return all[rnd.IntN(len(all))] }
	q := kv.Request{
		Op: kv.Op(1 + rnd.IntN(int(kv.OpArith))), Key: []byte{byte('a' + rnd.IntN(3))}, Flags: rnd.Uint32N(3),
		Value: []byte([]string{"", "7", "99", "x", "18446744073709551615"}[rnd.IntN(5)]), Delta: uint64(pick(0, 1, 3, 90)), Initial: uint64(pick(0, 5)),
		Expiry: pick(0, 0, -1, 1500, 5000), Vivify: pick(0, 1000, -5), Recache: pick(0, 1000, 3000),
	}
	if rnd.IntN(40) == 0 {
		q.Op = kv.OpFlush
	}
	for bit := uint32(1); bit <= kv.WantStored; bit <<= 1 {
		if rnd.IntN(3) == 0 {
			q.Want |= bit
		}
	}
	if r := m.records[string(q.Key)]; r != nil && rnd.IntN(4) != 0 {
		q.CAS = max(1, r.cas+1) - uint64(pick(0, 1, 1, 1, 2, 2))
	}
	return q
}

// Every request, with any bits, does to the store what it does to the specification.
func TestSpec(t *testing.T) {
	seed := testseed.New(t)
	for run := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, run))
		s, m := newStore(t, 4, Config{}), &spec{records: map[string]*specRecord{}}
		for step := range 1000 {
			now := m.now
			if rnd.IntN(3) == 0 {
				now += rnd.Uint64N(1200)
			}
			q := randomRequest(rnd, m)
			got, want := do(s, now, wire.Request{Request: q}), m.do(now, q)
			require.Equal(t, m.now, got.Clock)
			have := kv.Reply{Status: got.Status, Bits: got.Bits, Flags: got.Flags, CAS: got.CAS, Expiry: got.Expiry, Idle: got.Idle, Number: got.Number}
			if len(got.Value) > 0 {
				have.Value = got.Value
			}
			if len(want.Value) == 0 {
				want.Value = nil
			}
			require.Equal(t, want, have, "run %d, step %d: %+v", run, step, q)
			if rnd.IntN(5) == 0 {
				s.Tick(now, 1000)
				for key := range maps.Clone(m.records) {
					m.expire(key)
				}
			}
			if rnd.IntN(150) == 0 {
				s = restarted(t, s, m, rnd.Uint64N(2000))
			}
			var sum kv.Events
			for _, r := range s.Ranges() {
				sum = addEvents(sum, r.Events)
			}
			require.Equal(t, m.events, sum, "run %d, step %d: %+v", run, step, q)
			st := s.Stats()
			require.Equal(t, Stats{Gets: m.stats.Gets, Hits: m.stats.Hits, Sets: m.stats.Sets, Stored: m.stats.Stored, Flushes: m.stats.Flushes, Expired: m.events.Expired},
				Stats{Gets: st.Gets, Hits: st.Hits, Sets: st.Sets, Stored: st.Stored, Flushes: st.Flushes, Expired: st.Expired})
		}
		require.LessOrEqual(t, len(s.items), 3, "the items of removed records are used again")
	}
}

// addEvents adds what TestSpec's requests count: nothing is evicted there.
func addEvents(a, b kv.Events) kv.Events {
	return kv.Events{
		Sets: a.Sets + b.Sets, Hits: a.Hits + b.Hits, Touches: a.Touches + b.Touches, Deletes: a.Deletes + b.Deletes, Incrs: a.Incrs + b.Incrs,
		Decrs: a.Decrs + b.Decrs, CASHits: a.CASHits + b.CASHits, CASMismatches: a.CASMismatches + b.CASMismatches,
		Evicted: a.Evicted + b.Evicted, Expired: a.Expired + b.Expired, ExpiredUnfetched: a.ExpiredUnfetched + b.ExpiredUnfetched,
	}
}
