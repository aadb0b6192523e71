package cache

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Do carries out a request, so that a client is a store of package gateway. A request
// that only gets a record is a Get, so a hit is a READ; its reply has value, flags and
// CAS number. Everything else is an RPC. An error means that the outcome is not known, or
// that the server could not be asked before ctx ended. With [ErrMoved] there is a reply, too: it has what a member of a
// cluster says to another one that it promises nothing.
func (c *Client) Do(ctx context.Context, q *kv.Request) (kv.Reply, error) {
	if q.Op == kv.OpGet && q.Want == 0 {
		f := fetch{key: q.Key, dst: q.Into, grow: true}
		err := c.get(ctx, &f)
		switch {
		case err == nil:
			return kv.Reply{Status: kv.OK, Value: f.it.Value, Flags: f.it.Flags, CAS: f.it.CAS}, nil
		case errors.Is(err, errReserved):
			return kv.Reply{Status: kv.OK, CAS: f.it.CAS}, nil
		case errors.Is(err, ErrNotFound):
			return kv.Reply{Status: kv.NotFound}, nil
		}
		return kv.Reply{}, err
	}
	a, err := c.carryOut(ctx, "carry out", &wire.Request{Request: *q})
	switch {
	case errors.Is(err, ErrMoved):
		return a.Reply, err
	case a.Status != 0:
		return a.Reply, nil
	case errors.Is(err, ErrTooLarge):
		return kv.Reply{Status: kv.TooLarge}, nil
	}
	return kv.Reply{}, err
}

// Do carries out a request as [Client.Do] does, at the server that has the key; [kv.OpFlush] is for all servers.
func (c *Cluster) Do(ctx context.Context, q *kv.Request) (a kv.Reply, err error) {
	if q.Op == kv.OpFlush {
		if err = c.flush(ctx, q); err == nil {
			a.Status = kv.OK
		}
		return a, err
	}
	err = c.at(ctx, q.Key, func(one *Client) (err error) {
		a, err = one.Do(ctx, q)
		return err
	})
	return a, err
}
