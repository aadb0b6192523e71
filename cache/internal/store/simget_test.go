package store

import (
	"errors"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// get is what a client does: look up, READ, judge; or READ buckets first; or ask.
func (c *simClient) get(key int, finish func(simOp)) {
	w := c.w
	f := c.m.Fingerprint(w.keys[key])
	section := c.m.Enter()
	found := c.m.Lookup(f, nil)
	p, ok := c.m.Probe(f)
	if len(found) > 0 || !ok || w.rng.IntN(4) == 0 {
		c.try(key, found, section, finish)
		return
	}
	c.probe(key, &p, 0, 0, section, finish)
}

// probe READs the i-th bucket. What none has is missing.
func (c *simClient) probe(key int, p *mirror.Probe, i, torn int, section mirror.Section, finish func(simOp)) {
	m := c.m
	if i == p.Buckets() {
		c.w.absent++
		c.m.Leave(section)
		finish(simOp{})
		return
	}
	region, at := p.At(i)
	c.post(c.w.regions[region][at:at+wire.BucketSize], func(src []byte) {
		if src == nil || m != c.m {
			c.ask(key, finish)
			return
		}
		found, err := p.Read(src, i, nil)
		switch {
		case err == wire.Torn && torn < 2 && !c.w.hasty:
			c.probe(key, p, i, torn+1, section, finish)
		case err != nil && !(c.w.hasty && err == wire.Torn):
			c.m.Leave(section)
			c.ask(key, finish)
		case len(found) == 0:
			c.probe(key, p, i+1, 0, section, finish)
		default:
			if c.w.adopting {
				c.m.Adopt(p.Since(), &found[0])
			}
			c.try(key, found, section, finish)
		}
	})
}

func (c *simClient) post(src []byte, done func([]byte)) {
	c.reads = append(c.reads, c.w.post(src, done))
}

// follow READs what a tombstone leads to, and keeps the entry of what is alive there.
func (c *simClient) follow(key int, next wire.Entry, section mirror.Section, finish func(simOp)) {
	m, since := c.m, c.m.Applied()
	keep := func() { m.Adopt(since, &next) }
	c.tryLearning(key, []wire.Entry{next}, section, finish, keep)
}

func (c *simClient) try(key int, found []wire.Entry, section mirror.Section, finish func(simOp)) {
	c.tryLearning(key, found, section, finish, nil)
}

// tryLearning is try, and has learnt called for a hit.
func (c *simClient) tryLearning(key int, found []wire.Entry, section mirror.Section, finish func(simOp), learnt func()) {
	if len(found) == 0 {
		c.m.Leave(section)
		c.ask(key, finish)
		return
	}
	w, e := c.w, found[0]
	posted, at := c.local(), uint64(w.now)
	src := w.regions[e.Place.Region()][e.Place.Offset() : e.Place.Offset()+e.Place.Length()]
	m := c.m
	c.post(src, func(b []byte) {
		if b == nil || m != c.m { // the queue pair has failed
			c.ask(key, finish)
			return
		}
		r, verdict := c.judge(b, &e, key, posted)
		switch verdict {
		case mirror.Next:
			c.try(key, found[1:], section, finish)
			return
		case mirror.Ask:
			if next, ok := wire.Forwarded(b, &e); ok && w.rng.IntN(8) > 0 {
				c.follow(key, next, section, finish)
				return
			}
			c.m.Leave(section)
			c.ask(key, finish)
			return
		}
		if learnt != nil {
			w.followed++
			learnt()
		}
		c.m.Leave(section)
		w.hits++
		if r.Expiry != 0 && r.Expiry <= at {
			w.fail("a hit at %d, expired at %d", at, r.Expiry)
		}
		c.value(key, r.Value, finish)
	})
}

// judge is the mirror's, unless a flaw is wanted.
func (c *simClient) judge(b []byte, e *wire.Entry, key int, posted int64) (wire.Record, mirror.Verdict) {
	w := c.w
	switch {
	case w.credulous, w.unsummed:
		if _, err := wire.ReadRecord(b); w.unsummed && (errors.Is(err, wire.Dead) || errors.Is(err, wire.Malformed)) {
			return wire.Record{}, mirror.Ask
		}
		return c.believe(b, key)
	case w.stateless:
		wire.Publish(b)
	case w.unclocked:
		if r, err := wire.Validate(b, e, w.keys[key]); err == nil {
			return r, mirror.Hit
		}
	}
	before := c.m.Refused[wire.Torn]
	r, v := c.m.Judge(b, e, w.keys[key], posted)
	w.torn += c.m.Refused[wire.Torn] - before
	return r, v
}

// believe takes what fits into the bytes and has the right key.
func (c *simClient) believe(b []byte, key int) (r wire.Record, v mirror.Verdict) {
	defer func() {
		if recover() != nil {
			v = mirror.Ask // lengths that lead out of the bytes
		}
	}()
	if r = wire.PeekRecord(b); string(r.Key) != string(c.w.keys[key]) {
		return r, mirror.Ask
	}
	r.Expiry = 0
	return r, mirror.Hit
}
