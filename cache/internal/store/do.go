package store

import (
	"math"
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Do carries out a client's request. The reply's value is a view that is good until the next call.
func (s *Store) Do(now uint64, q *wire.Request) wire.Reply {
	return s.do(now, q.ID, q.Epoch, &q.Request)
}

// DoLocal carries out a request of this process likewise.
func (s *Store) DoLocal(now uint64, q *kv.Request) wire.Reply { return s.do(now, 0, 0, q) }

func (s *Store) do(now, number uint64, epoch uint32, q *kv.Request) wire.Reply {
	s.advance(now)
	a := &s.reply
	*a = wire.Reply{ID: number, Epoch: s.cfg.Epoch}
	switch {
	case epoch != 0 && epoch != s.cfg.Epoch:
		a.Status = wire.WrongEpoch
	case q.Op == kv.OpFlush:
		a.Status = s.doFlush(q)
	case q.Op == wire.OpList:
		a.Status = s.list(q, a)
	default:
		f := s.cfg.Secret.Fingerprint(q.Key)
		id, r, ok := s.lookup(f, q.Key)
		s.request = *q
		c := call{s: s, q: &s.request, a: a, fingerprint: f, id: id, old: r, found: ok}
		a.Status = c.do()
		c.count(a.Status)
		s.request = kv.Request{} // its bytes are the caller's
	}
	a.Clock, a.Seq = s.now, s.log.last
	return *a
}

func (s *Store) doFlush(q *kv.Request) kv.Status {
	if q.Want&kv.WantIfLater != 0 && q.Expiry > 0 {
		s.flushAt = s.now + uint64(q.Expiry)
		return kv.OK
	}
	s.flush()
	return kv.OK
}

// expiry returns the time of the server's clock for one that is relative to now. What is over already
// expires at once.
func (s *Store) expiry(t int64) uint64 {
	switch {
	case t == 0:
		return 0
	case t < 0:
		return max(s.now, 1)
	}
	return s.now + uint64(t)
}

// call is a request, and what was found of its key.
type call struct {
	s           *Store
	q           *kv.Request
	a           *wire.Reply
	fingerprint uint64
	id          uint32
	old         wire.Record
	found       bool
}

func (c *call) wants(bit uint32) bool { return c.q.Want&bit != 0 }

func (c *call) do() kv.Status {
	c.pass()
	switch c.q.Op {
	case kv.OpGet:
		return c.get()
	case kv.OpDelete:
		return c.delete()
	case kv.OpArith:
		return c.arith()
	}
	return c.set()
}

// pass takes a record that a get has made for none, if the request wants that. A delete still removes it.
func (c *call) pass() {
	switch {
	case !c.found || c.old.Attrs&wire.AttrVivified == 0 || !c.wants(kv.WantStored):
	case c.wants(kv.WantCompare) && c.q.CAS == c.old.CAS:
	case c.q.Op == kv.OpDelete && !c.wants(kv.WantCompare):
		c.s.remove(c.id)
		c.found = false
	default:
		c.found, c.a.Bits, c.a.CAS = false, kv.ReplyVivified, c.old.CAS
	}
}

// store writes a record of the request's key, and fills in the reply.
func (c *call) store(r wire.Record) kv.Status {
	r.Key, r.Fingerprint = c.q.Key, c.fingerprint
	id, status := c.s.write(c.id, &r)
	if status == kv.OK {
		c.id, c.a.Bits = id, c.a.Bits&^kv.ReplyVivified
		c.tell(&r)
	}
	return status
}

// tell fills in the reply from a record.
func (c *call) tell(r *wire.Record) {
	c.a.Flags, c.a.CAS, c.a.Expiry = r.Flags, r.CAS, r.Expiry
	c.a.Entry = c.s.entry(c.id)
	if r.Attrs&wire.AttrBinaryKey != 0 {
		c.a.Bits |= kv.ReplyBinary
	}
}

func (c *call) nextCAS() uint64 { c.s.cas += c.s.casStep; return c.s.cas }

// hold copies what lies in the old record before that may be used again.
func (c *call) hold(value []byte) []byte {
	c.s.scratch = append(c.s.scratch[:0], value...)
	return c.s.scratch
}

// again writes the old record with other attributes or another expiry: records are
// immutable, so that is a new one. How it was accessed before is not forgotten.
func (c *call) again(attrs uint16, expiry uint64) kv.Status {
	before := c.s.items[c.id]
	r := c.old
	r.Attrs, r.Expiry, r.Value = attrs, expiry, c.hold(r.Value)
	status := c.store(r)
	if status == kv.OK {
		it := &c.s.items[c.id]
		it.fetched, it.accessed = before.fetched, before.accessed
		c.old = r
	}
	return status
}

func (c *call) get() kv.Status {
	s := c.s
	s.stats.Gets++
	if !c.found {
		if !c.wants(kv.WantVivify) || c.a.Bits&kv.ReplyVivified != 0 {
			return kv.NotFound
		}
		r := wire.Record{CAS: c.nextCAS(), Expiry: s.expiry(c.q.Vivify), Attrs: wire.AttrWon | wire.AttrVivified | c.binary()}
		c.a.Bits = kv.ReplyWon | kv.ReplyCreated
		status := c.store(r)
		if status == kv.OK && !c.wants(kv.WantNoBump) {
			s.items[c.id].fetched = true // as memcached has it: its client has seen it
		}
		return status
	}
	s.stats.Hits++
	s.called(c.fingerprint)
	r, it := &c.old, &s.items[c.id]
	if it.fetched {
		c.a.Bits |= kv.ReplyFetched
	}
	c.a.Idle = s.now - it.accessed
	attrs, expiry := r.Attrs, r.Expiry
	if c.wants(kv.WantTouch) {
		expiry = s.expiry(c.q.Expiry)
	}
	sent := attrs&wire.AttrWon != 0
	if sent {
		c.a.Bits |= kv.ReplySent
	}
	if attrs&wire.AttrStale != 0 {
		c.a.Bits |= kv.ReplyStale
	}
	soon := c.wants(kv.WantRecache) && expiry != 0 && secondsUntil(expiry, s.now) < c.q.Recache
	if !sent && (soon || c.wants(kv.WantWin) && attrs&wire.AttrStale != 0) {
		attrs |= wire.AttrWon
		c.a.Bits |= kv.ReplyWon
	}
	if attrs != r.Attrs || expiry != r.Expiry {
		if status := c.again(attrs, expiry); status != kv.OK {
			return status
		}
		it = &s.items[c.id]
	}
	c.tell(r)
	if !c.wants(kv.WantNoValue) {
		c.a.Value = r.Value
	}
	if !c.wants(kv.WantNoBump) {
		it.fetched, it.accessed = true, s.now
		s.queue.Access(c.fingerprint, 1)
	}
	return kv.OK
}

// secondsUntil returns the time until an expiry in ms, rounded up to seconds, which memcached's clock
// counts.
func secondsUntil(expiry, now uint64) int64 {
	const second = 1000
	left := min(expiry-min(now, expiry), math.MaxInt64-second)
	return int64(left+second-1) / second * second
}

func (c *call) binary() uint16 {
	if c.wants(kv.WantBinary) {
		return wire.AttrBinaryKey
	}
	return 0
}

func (c *call) set() kv.Status {
	s := c.s
	s.stats.Sets++
	r := wire.Record{Flags: c.q.Flags, Expiry: s.expiry(c.q.Expiry), Attrs: c.binary(), Value: c.q.Value}
	matches := c.q.CAS == c.old.CAS && c.q.CAS != 0
	switch c.q.Op {
	case kv.OpAdd:
		if c.found {
			s.queue.Access(c.fingerprint, 1)
			s.items[c.id].accessed = s.now
			return kv.NotStored
		}
	case kv.OpSet, kv.OpReplace:
		switch {
		case c.wants(kv.WantCompare) && !c.found:
			return kv.NotFound
		case c.q.Op == kv.OpReplace && !c.found:
			return kv.NotStored
		case !c.wants(kv.WantCompare) || matches:
		case c.wants(kv.WantStale) && c.q.CAS != 0 && c.q.CAS < c.old.CAS:
			// A late value is better than none, but it stays marked.
			r.Expiry = c.old.Expiry
			r.Attrs |= wire.AttrStale | c.old.Attrs&wire.AttrWon
		default:
			return kv.Exists
		}
	case kv.OpAppend, kv.OpPrepend:
		switch {
		case !c.found:
			return kv.NotStored
		case c.wants(kv.WantCompare) && c.q.CAS != 0 && !matches:
			return kv.Exists
		}
		r.Flags, r.Expiry, r.Attrs = c.old.Flags, c.old.Expiry, c.old.Attrs&wire.AttrBinaryKey
		r.Value = c.joined()
	}
	r.CAS = c.nextCAS()
	return c.store(r)
}

func (c *call) joined() []byte {
	first, then := c.old.Value, c.q.Value
	if c.q.Op == kv.OpPrepend {
		first, then = then, first
	}
	s := append(c.s.scratch[:0], first...)
	c.s.scratch = append(s, then...)
	return c.s.scratch
}

func (c *call) delete() kv.Status {
	switch {
	case !c.found:
		return kv.NotFound
	case c.wants(kv.WantCompare) && c.q.CAS != c.old.CAS:
		return kv.Exists
	case !c.wants(kv.WantStale):
		c.s.remove(c.id)
		return kv.OK
	}
	expiry := c.old.Expiry
	if c.wants(kv.WantTouch) {
		expiry = c.s.expiry(c.q.Expiry)
	}
	c.old.CAS = c.nextCAS()
	return c.again(c.old.Attrs&^wire.AttrWon|wire.AttrStale, expiry)
}

// maxDigits are those of 2^64-1.
const maxDigits = 20

// arith adds to or subtracts from the number that a value is. A number that is shorter
// than the value is filled up with spaces, as memcached does.
func (c *call) arith() kv.Status {
	if !c.found {
		if !c.wants(kv.WantVivify) {
			return kv.NotFound
		}
		c.a.Number, c.a.Bits = c.q.Initial, kv.ReplyCreated
		var digits [maxDigits]byte
		return c.store(wire.Record{
			CAS: c.nextCAS(), Expiry: c.s.expiry(c.q.Vivify), Attrs: c.binary(),
			Value: strconv.AppendUint(digits[:0], c.q.Initial, 10),
		})
	}
	if len(c.old.Value) > 0 && c.wants(kv.WantCompare) && c.q.CAS != 0 && c.q.CAS != c.old.CAS {
		return kv.Exists
	}
	n, ok := Number(c.old.Value)
	if !ok {
		return kv.NotNumeric
	}
	switch {
	case !c.wants(kv.WantDecr):
		n += c.q.Delta
	case c.q.Delta > n:
		n = 0
	default:
		n -= c.q.Delta
	}
	c.a.Number = n
	value := strconv.AppendUint(c.s.scratch[:0], n, 10)
	r, before := c.old, c.s.items[c.id]
	if len(value) > len(r.Value) {
		r.Attrs &= wire.AttrBinaryKey
		before.fetched = false
	}
	for len(value) < len(r.Value) {
		value = append(value, ' ')
	}
	c.s.scratch = value
	r.Value, r.CAS = value, c.nextCAS()
	if c.wants(kv.WantTouch) {
		r.Expiry = c.s.expiry(c.q.Expiry)
	}
	status := c.store(r)
	if status == kv.OK {
		c.s.items[c.id].fetched = before.fetched
	}
	return status
}

// Number returns the number that a value begins with, as memcached reads it: digits up to the end or a
// space, a sign before them, spaces before that.
func Number(b []byte) (uint64, bool) {
	space := func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	negative := false
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		negative, b = b[0] == '-', b[1:]
	}
	i := 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i < len(b) && !space(b[i]) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[:i]), 10, 64)
	if negative {
		n = -n
	}
	// What looks negative as a signed number is refused if it has a sign.
	return n, err == nil && !(negative && int64(n) < 0)
}
