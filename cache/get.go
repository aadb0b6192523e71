package cache

import (
	"context"
	"errors"
	"runtime"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/verbs"
)

// Get returns the record of a key. Its value is a copy that belongs to the caller. Without a
// record the error matches [ErrNotFound].
func (c *Client) Get(ctx context.Context, key []byte) (Item, error) {
	f := fetch{key: key, grow: true}
	err := c.get(ctx, &f)
	return f.it, err
}

// GetInto is Get into the caller's memory: the item's value is the beginning of dst. If
// dst is too short the error matches [ErrShort]. A hit allocates nothing.
func (c *Client) GetInto(ctx context.Context, key, dst []byte) (Item, error) {
	f := fetch{key: key, dst: dst}
	err := c.get(ctx, &f)
	return f.it, err
}

// get retries until a session lives to the end of it: reads can be repeated.
func (c *Client) get(ctx context.Context, f *fetch) error {
	if err := checkKey(f.key); err != nil {
		return opError("get", f.key, err)
	}
	for {
		s, err := c.session(ctx)
		if err != nil {
			return opError("get", f.key, err)
		}
		if !s.nearby(f) {
			err = s.get(ctx, f)
		}
		if err == nil {
			if err = f.short(); err == nil {
				return nil
			}
			return opError("get", f.key, err)
		}
		if !errors.Is(err, errEnded) {
			return opError("get", f.key, err)
		}
	}
}

// get looks the key up and READs its record, or asks the server by an RPC.
func (s *session) get(ctx context.Context, f *fetch) error {
	var room [4]wire.Entry
	n := &s.c.count
	if s.by == TCP {
		return s.ask(ctx, f)
	}
	timed, begun := s.timed()
	s.mu.Lock()
	sec, ok := s.enter()
	if !ok {
		s.mu.Unlock()
		return errEnded
	}
	fingerprint, since := s.m.Fingerprint(f.key), s.m.Applied()
	found := s.m.Lookup(fingerprint, room[:0])
	v, err := s.tryAll(ctx, found, f)
	if len(found) == 0 {
		n.confirmed.Add(1)
	}
	if v == changed || len(found) == 0 && !s.m.Whole() {
		v, err = s.probe(ctx, fingerprint, room[:0], f)
	}
	if err != nil { // the next call goes on from there: without an entry it would have to ask
		for i := range found {
			s.m.Adopt(since, &found[i])
		}
	}
	s.leaveAfter(err, sec)
	due := v == mirror.Hit && s.yield.due(1, len(f.it.Value), &s.begun)
	s.mu.Unlock()
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ask(ctx, f)
	}
	switch v {
	case mirror.Hit:
		n.hits.Add(1)
	case absent:
		n.misses.Add(1)
	default:
		return s.ask(ctx, f)
	}
	if timed {
		s.tookEach(latency.Read, begun, sampling)
	}
	if v == absent {
		return ErrNotFound
	}
	if due {
		runtime.Gosched()
	}
	return nil
}

// tryAll READs what entries point at until one is the key's, or the server has to say. Its
// verdict is Next when all are other keys'. mu must be held; it is released during READs.
func (s *session) tryAll(ctx context.Context, found []wire.Entry, f *fetch) (v mirror.Verdict, err error) {
	v = mirror.Next
	for i := range found {
		v, err = s.try(ctx, &found[i], f)
		if v == forwarded && err == nil {
			v, err = s.follow(ctx, &found[i], f)
		}
		if err != nil || v == mirror.Hit {
			break
		}
		if s.c.count.refused.Add(1); v != mirror.Next {
			break
		}
	}
	return v, err
}

// follow READs the record that replaced one, and the one that replaced that. One that is alive goes
// into the map. mu must be held; it is released during READs.
func (s *session) follow(ctx context.Context, e *wire.Entry, f *fetch) (v mirror.Verdict, err error) {
	v = forwarded
	for range maxForwards {
		s.c.count.refused.Add(1)
		since := s.m.Applied()
		if v, err = s.try(ctx, e, f); v == mirror.Hit && err == nil {
			s.c.count.forwarded.Add(1)
			s.m.Adopt(since, e)
		}
		if v != forwarded || err != nil {
			return v, err
		}
	}
	return changed, nil
}

// try READs the record that an entry points at. If that is a tombstone which leads to another record, *e becomes
// the entry of that one. mu must be held; it is released during the READ.
func (s *session) try(ctx context.Context, e *wire.Entry, f *fetch) (v mirror.Verdict, err error) {
	n := e.Place.Length()
	if int(e.Place.Region()) >= len(s.regions) || n > s.c.cfg.MaxRecord {
		return mirror.Ask, nil
	}
	b, err := s.buffer(ctx, n)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return 0, ctx.Err()
	default: // no memory can be registered: there is another way
		return mirror.Ask, nil
	}
	mark := s.mark(e.Fingerprint)
	s.mu.Unlock()
	err = s.readInto(ctx, b, n, s.regions[e.Place.Region()], uint64(e.Place.Offset()))
	var r wire.Record
	var refusal error
	var next wire.Entry
	leads := false
	if err == nil {
		if refusal = r.Validate(b.bytes(n), e, f.key); refusal == nil {
			f.take(r.Value, r.Flags, r.CAS)
		} else if refusal == wire.Dead {
			next, leads = wire.Forwarded(b.bytes(n), e)
		}
	}
	s.mu.Lock()
	s.releaseAfter(err, b)
	if err != nil {
		return 0, err
	}
	now := int64(0)
	if r.Expiry != 0 || s.placed { // otherwise it is not worth a look at the clock
		now = s.clock()
	}
	v = s.judge(&r, refusal, e, now, mark)
	switch {
	case leads:
		*e, v = next, forwarded
	case v == mirror.Ask && refusal == wire.Dead:
		v = changed
	}
	if v != mirror.Hit {
		f.it = Item{}
	}
	return v, nil
}

// readInto READs n bytes into a buffer: at once, or in parts under the pacer.
func (s *session) readInto(ctx context.Context, b *buffer, n int, from verbs.Region, off uint64) error {
	if !s.c.paced(n) {
		s.c.count.reads.Add(1)
		return s.readOne(ctx, from.At(off), b.mr.SGE(b.off, n))
	}
	f, err := s.newFlow(ctx)
	if err != nil {
		return err
	}
	return f.end(f.record(b, n, from, off))
}

// readOne READs one thing.
func (s *session) readOne(ctx context.Context, from verbs.Remote, to verbs.SGE) error {
	h := s.through
	if h == nil {
		return s.read.Read(ctx, from, to)
	}
	w, err := h.open()
	if err != nil {
		return err
	}
	return h.over(ctx, w, h.i.Do(ctx, w.peer, readRequest(from, to)))
}

// An entry's record is gone: what became of it is found without the server's processor.
const (
	// changed is the verdict that the bucket says what became of it, by two more READs.
	changed = mirror.Verdict(254)
	// forwarded is the verdict that the tombstone leads to the next one, by one more READ.
	forwarded = mirror.Verdict(253)
)

// maxForwards is how many tombstones are followed, from one to the next, before the bucket is READ, which
// has the last record.
const maxForwards = 2

// failed returns the cause of a READ's error: the context's error, the pacer's, or errEnded;
// nil if the server is to be asked.
func (s *session) failed(ctx context.Context, err error) error {
	if errors.Is(err, ErrPacer) {
		return err
	}
	if s.through != nil {
		return s.notThrough(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) && s.reads.QP().Err() == nil {
		return ctx.Err()
	}
	s.end(err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errEnded
}

// ask gets the record by an RPC.
func (s *session) ask(ctx context.Context, f *fetch) error {
	q := wire.Request{Request: kv.Request{Op: kv.OpGet, Want: kv.WantStored, Key: f.key}}
	a, err := s.call(ctx, &q)
	if err != nil {
		return err
	}
	switch a.Status {
	case kv.OK:
		f.take(a.Value, a.Flags, a.CAS)
		return nil
	case kv.NotFound:
		s.c.count.misses.Add(1)
		if a.Bits&kv.ReplyVivified != 0 {
			f.it.CAS = a.CAS
			return errReserved
		}
	}
	return outcome(a.Status)
}
