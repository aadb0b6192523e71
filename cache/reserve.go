package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A loader reserves a key before it loads the record, so that other loaders wait. The reservation is what a get with
// WantVivify makes, an empty record: programs that speak memcached's protocol find that, and to clients there is none.

// errReserved: another loader has reserved the key.
var errReserved = fmt.Errorf("%w: a loader fetches the record", ErrNotFound)

// reserver is a cache in which keys can be reserved.
type reserver interface {
	// reserve returns the record of a key. Without one it reserves the key for a time, and returns the number of
	// the reservation, with which CompareAndSwap stores the record. The error is errReserved if another loader has done
	// so before.
	reserve(ctx context.Context, key []byte, d time.Duration) (it Item, number uint64, err error)
	// release ends a reservation.
	release(ctx context.Context, key []byte, number uint64) error
}

func (c *Client) reserve(ctx context.Context, key []byte, d time.Duration) (it Item, number uint64, err error) {
	a, err := c.change(ctx, "reserve", &wire.Request{Request: kv.Request{Op: kv.OpGet, Want: kv.WantVivify, Key: key, Vivify: expiry(d)}})
	switch {
	case err == nil && a.Bits&kv.ReplyCreated != 0:
		return Item{}, a.CAS, nil
	case err == nil:
		return Item{Value: a.Value, Flags: a.Flags, CAS: a.CAS}, 0, nil
	case errors.Is(err, ErrNotFound):
		err = opError("reserve", key, errReserved)
	}
	return Item{}, 0, err
}

func (c *Client) release(ctx context.Context, key []byte, number uint64) error {
	_, err := c.change(ctx, "release", &wire.Request{Request: kv.Request{Op: kv.OpDelete, Want: kv.WantCompare, Key: key, CAS: number}})
	return err
}

func (c *Cluster) reserve(ctx context.Context, key []byte, d time.Duration) (it Item, number uint64, err error) {
	err = c.at(ctx, key, func(one *Client) (err error) {
		it, number, err = one.reserve(ctx, key, d)
		return err
	})
	return it, number, c.missed(err)
}

func (c *Cluster) release(ctx context.Context, key []byte, number uint64) error {
	return c.at(ctx, key, func(one *Client) error { return one.release(ctx, key, number) })
}
