package cache

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Get returns the record of a key: see [Client.Get].
func (c *Cluster) Get(ctx context.Context, key []byte) (Item, error) {
	it, err := c.Server(key).Get(ctx, key)
	return it, c.missed(err)
}

// GetInto is Get into the caller's memory: see [Client.GetInto].
func (c *Cluster) GetInto(ctx context.Context, key, dst []byte) (Item, error) {
	it, err := c.Server(key).GetInto(ctx, key, dst)
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
func (c *Cluster) scatter(n int, key func(int) []byte, add func(*part, int)) []*part {
	parts := make([]*part, len(c.servers))
	for i := range n {
		p := &parts[c.list.Of(key(i))]
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
func (c *Cluster) eachPart(parts []*part, do func(*Client, *part)) {
	var others sync.WaitGroup
	own := -1 // that this goroutine does
	for i, p := range parts {
		if p == nil {
			continue
		}
		if own >= 0 {
			before := own
			others.Go(func() { do(c.servers[before], parts[before]) })
		}
		own = i
	}
	if own >= 0 {
		do(c.servers[own], parts[own])
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
	parts := c.scatter(len(keys), func(i int) []byte { return keys[i] }, func(p *part, i int) {
		p.keys, p.results = append(p.keys, keys[i]), append(p.results, into[i])
	})
	c.eachPart(parts, func(one *Client, p *part) { p.results = one.GetMulti(ctx, p.keys, p.results) })
	c.merge(parts, func(p *part, i, at int) {
		into[at] = p.results[i]
		into[at].Err = c.missed(into[at].Err)
	})
	return into
}

// Set stores a record: see [Client.Set].
func (c *Cluster) Set(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.Server(key).Set(ctx, key, it, ttl)
}

// SetMulti stores many records: see [Client.SetMulti]. It sends to all servers at once.
func (c *Cluster) SetMulti(ctx context.Context, puts []Entry, into []error) []error {
	into = slices.Grow(into[:0], len(puts))[:len(puts)]
	parts := c.scatter(len(puts), func(i int) []byte { return puts[i].Key }, func(p *part, i int) {
		p.puts = append(p.puts, puts[i])
	})
	c.eachPart(parts, func(one *Client, p *part) { p.errs = one.SetMulti(ctx, p.puts, p.errs) })
	c.merge(parts, func(p *part, i, at int) { into[at] = p.errs[i] })
	return into
}

// Add stores a record if there is none of the key: see [Client.Add].
func (c *Cluster) Add(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.Server(key).Add(ctx, key, it, ttl)
}

// Replace stores a record if there is one of the key: see [Client.Replace].
func (c *Cluster) Replace(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.Server(key).Replace(ctx, key, it, ttl)
}

// CompareAndSwap stores a record in place of one that was read: see
// [Client.CompareAndSwap].
func (c *Cluster) CompareAndSwap(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.Server(key).CompareAndSwap(ctx, key, it, ttl)
}

// Append adds bytes to the end of a value: see [Client.Append].
func (c *Cluster) Append(ctx context.Context, key, value []byte) error {
	return c.Server(key).Append(ctx, key, value)
}

// Prepend adds bytes to the beginning of a value: see [Client.Prepend].
func (c *Cluster) Prepend(ctx context.Context, key, value []byte) error {
	return c.Server(key).Prepend(ctx, key, value)
}

// Delete removes a record: see [Client.Delete].
func (c *Cluster) Delete(ctx context.Context, key []byte) error {
	return c.Server(key).Delete(ctx, key)
}

// Increment adds to a number: see [Client.Increment].
func (c *Cluster) Increment(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	return c.Server(key).Increment(ctx, key, delta)
}

// Decrement subtracts from a number: see [Client.Decrement].
func (c *Cluster) Decrement(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	return c.Server(key).Decrement(ctx, key, delta)
}

// Touch makes a record expire after ttl: see [Client.Touch].
func (c *Cluster) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	return c.Server(key).Touch(ctx, key, ttl)
}

// TTL returns the time until a record expires: see [Client.TTL].
func (c *Cluster) TTL(ctx context.Context, key []byte) (time.Duration, error) {
	return c.Server(key).TTL(ctx, key)
}

// FlushAll removes all records of all servers. The error joins the errors of the servers
// that did not, or may not have done so.
func (c *Cluster) FlushAll(ctx context.Context) error {
	return c.each(func(one *Client) error { return one.FlushAll(ctx) })
}
