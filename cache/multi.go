package cache

import (
	"context"
	"errors"
	"slices"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// Result is the result of [Client.GetMulti] for one key.
type Result struct {
	Item
	Err error // Get's; with one the value is empty
}

// GetMulti returns the records of many keys, in the order of the keys, each with an error
// of its own. READs are posted together, up to 32 by one doorbell, and the server is
// asked at once for everything that needs it. Records that are long together are READ in
// parts, of which several may be under way, as the pacer has credit for them (PaceFrom in
// [Config]). Without a whole map (MapBytes in [Config]) buckets are READ together in the
// same way, and then what they point at.
//
// Results go into the slice that is passed, which may be nil, and values into the memory
// of its values. So hits allocate nothing if the caller passes the results of the last
// call, and no longer needs them.
func (c *Client) GetMulti(ctx context.Context, keys [][]byte, into []Result) []Result {
	into = slices.Grow(into[:0], len(keys))[:len(keys)]
	for i, key := range keys {
		into[i] = Result{Item: Item{Value: into[i].Value[:0]}, Err: errPending}
		if err := checkKey(key); err != nil {
			into[i].Err = opError("get", key, err)
		}
	}
	for {
		s, err := c.session(ctx)
		if err == nil {
			begun := s.elapsed()
			if err = s.getMulti(ctx, keys, into); err == nil {
				s.took(latency.GetMulti, begun)
			}
		}
		if errors.Is(err, errEnded) {
			continue // with the next one, for the keys that are pending
		}
		for i := range into {
			if into[i].Err == errPending {
				into[i].Err = opError("get", keys[i], err)
			}
		}
		return into
	}
}

// errPending is the error of a key that has no result yet.
var errPending = errors.New("no reply yet")

// getMulti gets the pending keys: by READs, and by RPCs those that no READ settles.
func (s *session) getMulti(ctx context.Context, keys [][]byte, into []Result) (err error) {
	for at := 0; s.by != TCP && at < len(keys) && err == nil; {
		begin := at
		at, err = s.readMulti(ctx, keys, into, at)
		s.yieldAfter(at - begin)
	}
	if err == nil {
		err = s.askMulti(ctx, keys, into)
	}
	return err
}

// askMulti asks the server for the keys still pending: all RPCs are under way together.
func (s *session) askMulti(ctx context.Context, keys [][]byte, into []Result) error {
	type asked struct {
		key int
		c   *call
	}
	var all []asked
	var first error
	for i, key := range keys {
		if into[i].Err != errPending {
			continue
		}
		c, err := s.start(ctx, &wire.Request{Request: kv.Request{Op: kv.OpGet, Want: kv.WantStored, Key: key}})
		if err != nil {
			first = err
			break
		}
		all = append(all, asked{i, c})
	}
	for _, q := range all {
		a, err := s.wait(ctx, q.c)
		if err == nil {
			err = outcome(a.Status)
		}
		r := &into[q.key]
		switch {
		case err == nil:
			r.Value, r.Flags, r.CAS, r.Err = append(r.Value[:0], a.Value...), a.Flags, a.CAS, nil
		case a.Status == kv.NotFound:
			s.c.count.misses.Add(1)
			fallthrough
		case a.Status != 0 && !errors.Is(err, errEnded):
			r.Err = opError("get", keys[q.key], err)
		case first == nil:
			first = err
		}
	}
	return first
}
