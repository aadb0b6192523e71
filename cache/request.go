package cache

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Do carries out a request of package gateway, to which a client is a store. A request
// that only gets a record is a Get, so a hit is a READ; its reply has value, flags and
// CAS number. Everything else is a call. An error means that the outcome is not known, or
// that the server could not be asked before ctx ended.
func (c *Client) Do(ctx context.Context, q *wire.Request) (wire.Reply, error) {
	if q.Op == wire.OpGet && q.Want == 0 {
		it, err := c.get(ctx, q.Key, q.Into, true)
		switch {
		case err == nil:
			return wire.Reply{Status: wire.OK, Value: it.Value, Flags: it.Flags, CAS: it.CAS}, nil
		case errors.Is(err, ErrNotFound):
			return wire.Reply{Status: wire.NotFound}, nil
		}
		return wire.Reply{}, err
	}
	mine := *q // a session fills in its own numbers
	a, err := c.change(ctx, "carry out", &mine)
	switch {
	case a.Status != 0:
		return a, nil
	case errors.Is(err, ErrTooLarge):
		return wire.Reply{Status: wire.TooLarge}, nil
	}
	return wire.Reply{}, err
}
