package cache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/backoff"
)

// Entry is a record that SetMulti stores.
type Entry struct {
	Key []byte
	Item
	TTL time.Duration // the record expires then; 0 means never
}

// SetMulti stores many records, as [Client.Set] does one, and returns the error of each,
// nil for a record that was stored. It is not one change: others may see some of the
// records before the rest. Keys should differ: of two records of one key either may
// remain.
//
// All requests are sent before any is waited for. They go out as one byte stream in SENDs
// of 4 KiB; one doorbell posts as many SENDs as the server has receives for, up to four.
//
// Errors go into the slice that is passed, which may be nil.
func (c *Client) SetMulti(ctx context.Context, puts []Entry, into []error) []error {
	into = slices.Grow(into[:0], len(puts))[:len(puts)]
	for i := range puts {
		into[i] = errPending
		q := puts[i].request()
		if err := checkRequest(&q); err != nil {
			into[i] = opError("set", q.Key, err)
		}
	}
	pause := backoff.New(shortPause, longPause)
	for left := memoryRetries; ; {
		s, err := c.session(ctx)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			begun := s.elapsed()
			if err = s.setMulti(ctx, puts, into); err == nil {
				s.took(latency.SetMulti, begun)
			}
		}
		switch pending := slices.Contains(into, errPending); {
		case err == errNotSent:
			continue
		case !pending:
			return into
		case err == nil && left == 0:
			err = ErrNoMemory
		case err == nil:
			left--
			if err = pause.Wait(ctx); err == nil { // what was freed may be out of quarantine soon
				continue
			}
			err = errors.Join(ErrNoMemory, err)
		}
		for i := range into {
			if into[i] == errPending {
				into[i] = opError("set", puts[i].Key, err)
			}
		}
		return into
	}
}

func (p *Entry) request() wire.Request {
	return wire.Request{Request: kv.Request{Op: kv.OpSet, Key: p.Key, Value: p.Value, Flags: p.Flags, Expiry: expiry(p.TTL)}}
}

// setMulti stores the pending records. Those that the server has no memory for stay
// pending, and, with an error, those that were not sent.
func (s *session) setMulti(ctx context.Context, puts []Entry, into []error) (err error) {
	calls := make([]*call, len(puts))
	s.mu.Lock()
	for i := range puts {
		if into[i] == errPending {
			q := puts[i].request()
			calls[i], err = s.queue(ctx, &q)
			if err == ErrTooLarge {
				into[i], err = opError("set", q.Key, err), nil
			}
			if err != nil {
				break
			}
		}
	}
	s.signal()
	s.mu.Unlock()
	for i, c := range calls {
		if c == nil {
			continue
		}
		a, lost := s.wait(ctx, c)
		switch {
		case lost != nil:
			into[i] = opError("set", puts[i].Key, s.unknown(lost))
		case a.Status == kv.OK:
			into[i] = nil
		case a.Status != kv.NoMemory:
			into[i] = opError("set", puts[i].Key, outcome(a.Status))
		}
	}
	return err
}
