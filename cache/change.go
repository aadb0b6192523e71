package cache

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Changes are RPCs. When one returns nil, a READ of any client that begins later sees
// the change, or a later one. An error that matches [ErrOutcomeUnknown] leaves open whether the
// change was made.

// Set stores a record, whatever was there. It expires after ttl; 0 means never.
func (c *Client) Set(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.store(ctx, "set", kv.OpSet, 0, key, it, ttl)
}

// Add stores a record if there is none of the key, otherwise the error matches
// [ErrNotStored].
func (c *Client) Add(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.store(ctx, "add", kv.OpAdd, 0, key, it, ttl)
}

// Replace stores a record if there is one of the key, otherwise the error matches
// [ErrNotStored].
func (c *Client) Replace(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.store(ctx, "replace", kv.OpReplace, 0, key, it, ttl)
}

// CompareAndSwap stores a record in place of the one with the number it.CAS. If there is
// another record the error matches [ErrChanged], and if there is none [ErrNotFound].
func (c *Client) CompareAndSwap(ctx context.Context, key []byte, it Item, ttl time.Duration) error {
	return c.store(ctx, "compare and swap", kv.OpSet, kv.WantCompare, key, it, ttl)
}

func (c *Client) store(ctx context.Context, name string, op kv.Op, want uint32, key []byte, it Item, ttl time.Duration) error {
	_, err := c.change(ctx, name, &wire.Request{Request: kv.Request{Op: op, Want: want, Key: key, Value: it.Value, Flags: it.Flags, CAS: it.CAS, Expiry: expiry(ttl)}})
	return err
}

// Append adds bytes to the end of a value. Without a record the error matches
// [ErrNotStored].
func (c *Client) Append(ctx context.Context, key, value []byte) error {
	_, err := c.change(ctx, "append", &wire.Request{Request: kv.Request{Op: kv.OpAppend, Key: key, Value: value}})
	return err
}

// Prepend adds bytes to the beginning of a value. Without a record the error matches
// [ErrNotStored].
func (c *Client) Prepend(ctx context.Context, key, value []byte) error {
	_, err := c.change(ctx, "prepend", &wire.Request{Request: kv.Request{Op: kv.OpPrepend, Key: key, Value: value}})
	return err
}

// Delete removes a record. Without one the error matches [ErrNotFound].
func (c *Client) Delete(ctx context.Context, key []byte) error {
	_, err := c.change(ctx, "delete", &wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: key}})
	return err
}

// Increment adds to a value that is a decimal number of 64 bits, and returns the sum,
// which wraps around. Without a record the error matches [ErrNotFound], and for another
// value [ErrNotNumeric].
func (c *Client) Increment(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	a, err := c.change(ctx, "increment", &wire.Request{Request: kv.Request{Op: kv.OpArith, Key: key, Delta: delta}})
	return a.Number, err
}

// Decrement subtracts from a value that is a decimal number of 64 bits, and returns the
// difference, or 0 if that is below 0. Errors are those of [Client.Increment].
func (c *Client) Decrement(ctx context.Context, key []byte, delta uint64) (uint64, error) {
	a, err := c.change(ctx, "decrement", &wire.Request{Request: kv.Request{Op: kv.OpArith, Want: kv.WantDecr, Key: key, Delta: delta}})
	return a.Number, err
}

// Touch makes a record expire after ttl; 0 means never. Without a record the error matches
// [ErrNotFound].
func (c *Client) Touch(ctx context.Context, key []byte, ttl time.Duration) error {
	_, err := c.change(ctx, "touch", &wire.Request{Request: kv.Request{Op: kv.OpGet, Want: kv.WantTouch | kv.WantNoValue, Key: key, Expiry: expiry(ttl)}})
	return err
}

// FlushAll removes all records. It waits until no client can READ any of them, a lease at most.
func (c *Client) FlushAll(ctx context.Context) error {
	return c.flush(ctx, &kv.Request{Op: kv.OpFlush}, 0)
}

// flush carries out a [kv.OpFlush] for a client that has the placement of an epoch.
func (c *Client) flush(ctx context.Context, q *kv.Request, placement uint32) error {
	_, err := c.change(ctx, "flush", &wire.Request{Placement: placement, Request: *q})
	return err
}

// TTL returns the time until a record expires, by the server's clock; 0 means never. Without a
// record the error matches [ErrNotFound]. It is an RPC.
func (c *Client) TTL(ctx context.Context, key []byte) (time.Duration, error) {
	if err := checkKey(key); err != nil {
		return 0, opError("ttl", key, err)
	}
	for {
		s, err := c.session(ctx)
		if err != nil {
			return 0, opError("ttl", key, err)
		}
		a, err := s.call(ctx, &wire.Request{Request: kv.Request{Op: kv.OpGet, Want: kv.WantNoValue | kv.WantNoBump | kv.WantStored, Key: key}})
		if errors.Is(err, errEnded) {
			continue
		}
		if err == nil {
			err = outcome(a.Status)
		}
		switch {
		case err != nil:
			return 0, opError("ttl", key, err)
		case a.Expiry == 0:
			return 0, nil
		}
		return left(a.Expiry, a.Clock), nil
	}
}

// left returns the time from clock to expiry, in ms by the server's clock, or the longest Duration.
func left(expiry, clock uint64) time.Duration {
	const most = math.MaxInt64 / uint64(time.Millisecond)
	if ms := expiry - min(clock, expiry); ms <= most {
		return time.Duration(ms) * time.Millisecond
	}
	return math.MaxInt64
}

// expiry returns a time to live in ms, rounded up. Below 0 it is over already.
func expiry(ttl time.Duration) int64 {
	if ttl < 0 {
		return -1
	}
	ms := int64(ttl / time.Millisecond)
	if ttl%time.Millisecond > 0 {
		ms++
	}
	return ms
}
