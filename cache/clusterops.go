package cache

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
)

// follow calls do with the routes, and again while it was not executed since keys or members move.
func (c *Cluster) follow(ctx context.Context, do func(*routes) error) error {
	for n := 0; ; n++ {
		r := c.routes.Load()
		err := do(r)
		if !c.again(ctx, r, n, err) {
			return err
		}
	}
}

// at calls do with the client of a key's server, until that has the key.
func (c *Cluster) at(ctx context.Context, key []byte, do func(*Client) error) error {
	return c.follow(ctx, func(r *routes) error { return r.gone(key, do(r.server(key))) })
}

// Get returns the record of a key: see [Client.Get].
func (c *Cluster) Get(ctx context.Context, key []byte) (it Item, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		it, err = one.Get(ctx, key)
		return err
	})
	return it, c.missed(err)
}

// GetInto is Get into the caller's memory: see [Client.GetInto].
func (c *Cluster) GetInto(ctx context.Context, key, dst []byte) (it Item, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		it, err = one.GetInto(ctx, key, dst)
		return err
	})
	return it, c.missed(err)
}

// part is one server's share of many keys.
type part struct {
	keys    [][]byte
	results []Result
	puts    []Entry
	errs    []error
	at      []int // in what the caller passed
}

// scatter assigns each of n keys to its server. Its parts go back with merge.
func (c *Cluster) scatter(r *routes, n int, key func(int) []byte, add func(*part, int)) []*part {
	parts := make([]*part, len(r.clients))
	for i := range n {
		p := &parts[r.of(key(i))]
		if *p == nil {
			if *p, _ = c.parts.Get().(*part); *p == nil {
				*p = &part{}
			}
		}
		(*p).at = append((*p).at, i)
		add(*p, i)
	}
	return parts
}

// eachPart calls do for each server's part, all at once: no part waits for another server before
// it has posted, or holds anything of one server while it waits for another.
func (r *routes) eachPart(parts []*part, do func(*Client, *part)) {
	var others sync.WaitGroup
	own := -1 // that this goroutine does
	for i, p := range parts {
		if p == nil {
			continue
		}
		if own >= 0 {
			before := own
			others.Go(func() { do(r.clients[before], parts[before]) })
		}
		own = i
	}
	if own >= 0 {
		do(r.clients[own], parts[own])
	}
	others.Wait()
}

// merge calls take for each key, and returns the parts to the pool without the caller's data.
func (c *Cluster) merge(parts []*part, take func(*part, int, int)) {
	for _, p := range parts {
		if p == nil {
			continue
		}
		for i, at := range p.at {
			take(p, i, at)
		}
		clear(p.keys)
		clear(p.results)
		clear(p.puts)
		clear(p.errs)
		p.keys, p.results, p.puts, p.errs, p.at = p.keys[:0], p.results[:0], p.puts[:0], p.errs[:0], p.at[:0]
		c.parts.Put(p)
	}
}

// GetMulti returns the records of many keys: see [Client.GetMulti]. It asks all servers
// at once.
func (c *Cluster) GetMulti(ctx context.Context, keys [][]byte, into []Result) []Result {
	into = slices.Grow(into[:0], len(keys))[:len(keys)]
	followMulti(ctx, c, keys, into, func(r *Result) error { return r.Err }, func(r *routes, keys [][]byte, into []Result) {
		c.getMulti(ctx, r, keys, into)
	})
	for i := range into {
		into[i].Err = c.missed(into[i].Err)
	}
	return into
}

// followMulti calls do with the routes for all of in, and again for each result with an error that says that
// it was not executed since keys or members move.
func followMulti[In, Out any](ctx context.Context, c *Cluster, in []In, out []Out, failure func(*Out) error, do func(*routes, []In, []Out)) {
	r := c.routes.Load()
	do(r, in, out)
	for n := 0; ; n++ {
		var left []In
		var at []int
		for i := range out {
			if c.repeats(r, failure(&out[i])) {
				left, at = append(left, in[i]), append(at, i)
			}
		}
		if len(at) == 0 || !c.again(ctx, r, n, failure(&out[at[0]])) {
			return
		}
		r = c.routes.Load()
		results := make([]Out, len(left))
		do(r, left, results)
		for i, to := range at {
			out[to] = results[i]
		}
	}
}

func (c *Cluster) getMulti(ctx context.Context, r *routes, keys [][]byte, into []Result) {
	parts := c.scatter(r, len(keys), func(i int) []byte { return keys[i] }, func(p *part, i int) {
		p.keys, p.results = append(p.keys, keys[i]), append(p.results, into[i])
	})
	r.eachPart(parts, func(one *Client, p *part) { p.results = one.GetMulti(ctx, p.keys, p.results) })
	c.merge(parts, func(p *part, i, at int) {
		into[at] = p.results[i]
		into[at].Err = r.gone(keys[at], into[at].Err)
	})
}

// Set stores a record: see [Client.Set].
func (c *Cluster) Set(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.at(ctx, key, func(one *Client) error { return one.Set(ctx, key, it, ttl) })
}

// SetMulti stores many records: see [Client.SetMulti]. It sends to all servers at once.
func (c *Cluster) SetMulti(ctx context.Context, puts []Entry, into []error) []error {
	into = slices.Grow(into[:0], len(puts))[:len(puts)]
	followMulti(ctx, c, puts, into, func(err *error) error { return *err }, func(r *routes, puts []Entry, into []error) {
		c.setMulti(ctx, r, puts, into)
	})
	return into
}

func (c *Cluster) setMulti(ctx context.Context, r *routes, puts []Entry, into []error) {
	parts := c.scatter(r, len(puts), func(i int) []byte { return puts[i].Key }, func(p *part, i int) {
		p.puts = append(p.puts, puts[i])
	})
	r.eachPart(parts, func(one *Client, p *part) { p.errs = one.SetMulti(ctx, p.puts, p.errs) })
	c.merge(parts, func(p *part, i, at int) { into[at] = r.gone(puts[at].Key, p.errs[i]) })
}

// Add stores a record if there is none of the key: see [Client.Add].
func (c *Cluster) Add(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.at(ctx, key, func(one *Client) error { return one.Add(ctx, key, it, ttl) })
}

// Replace stores a record if there is one of the key: see [Client.Replace].
func (c *Cluster) Replace(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.at(ctx, key, func(one *Client) error { return one.Replace(ctx, key, it, ttl) })
}

// CompareAndSwap stores a record in place of one that was read: see
// [Client.CompareAndSwap].
func (c *Cluster) CompareAndSwap(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.at(ctx, key, func(one *Client) error { return one.CompareAndSwap(ctx, key, it, ttl) })
}

// Append adds bytes to the end of a value: see [Client.Append].
func (c *Cluster) Append(ctx context.Context, key, value []byte) error {
	return c.at(ctx, key, func(one *Client) error { return one.Append(ctx, key, value) })
}

// Prepend adds bytes to the beginning of a value: see [Client.Prepend].
func (c *Cluster) Prepend(ctx context.Context, key, value []byte) error {
	return c.at(ctx, key, func(one *Client) error { return one.Prepend(ctx, key, value) })
}

// Delete removes a record: see [Client.Delete].
func (c *Cluster) Delete(ctx context.Context, key []byte) error {
	return c.at(ctx, key, func(one *Client) error { return one.Delete(ctx, key) })
}

// Increment adds to a number: see [Client.Increment].
func (c *Cluster) Increment(ctx context.Context, key []byte, delta uint64) (v uint64, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		v, err = one.Increment(ctx, key, delta)
		return err
	})
	return v, err
}

// Decrement subtracts from a number: see [Client.Decrement].
func (c *Cluster) Decrement(ctx context.Context, key []byte, delta uint64) (v uint64, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		v, err = one.Decrement(ctx, key, delta)
		return err
	})
	return v, err
}

// Touch makes a record expire after ttl: see [Client.Touch].
func (c *Cluster) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	return c.at(ctx, key, func(one *Client) error { return one.Touch(ctx, key, ttl) })
}

// TTL returns the time until a record expires: see [Client.TTL].
func (c *Cluster) TTL(ctx context.Context, key []byte) (v time.Duration, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		v, err = one.TTL(ctx, key)
		return err
	})
	return v, err
}

// FlushAll removes all records of all servers. The error joins the errors of the servers
// that did not, or may not have done so.
func (c *Cluster) FlushAll(ctx context.Context) error {
	return c.flush(ctx, &kv.Request{Op: kv.OpFlush})
}

func (c *Cluster) flush(ctx context.Context, q *kv.Request) error {
	return c.follow(ctx, func(r *routes) error {
		return r.each(func(one *Client) error { return one.flush(ctx, q, r.epoch) })
	})
}
