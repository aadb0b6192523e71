package cache

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// call is a request that waits for its reply.
type call struct {
	id    uint64
	asked int64
	reply wire.Reply
	done  chan error
}

// call has the server carry out a request. The reply's value is the caller's.
// errEnded says that no reply will come.
func (s *session) call(ctx context.Context, q *wire.Request) (wire.Reply, error) {
	c, err := s.start(ctx, q)
	if err != nil {
		return wire.Reply{}, err
	}
	return s.wait(ctx, c)
}

// start sends a request, whose reply is to be waited for.
func (s *session) start(ctx context.Context, q *wire.Request) (*call, error) {
	c := &call{done: make(chan error, 1)}
	s.mu.Lock()
	for len(s.out) > maxOut && !s.ended.Load() { // the server does not take them
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-s.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s.mu.Lock()
	}
	if s.ended.Load() {
		s.mu.Unlock()
		return nil, errNotSent
	}
	s.last++
	q.ID, q.Epoch = s.last, s.m.Epoch()
	c.id, c.asked = q.ID, s.clock()
	s.calls[q.ID] = c
	s.out = wire.AppendRequest(s.out, q)
	s.poke()
	s.mu.Unlock()
	s.c.count.calls.Add(1)
	return c, nil
}

func (s *session) wait(ctx context.Context, c *call) (wire.Reply, error) {
	select {
	case err := <-c.done:
		return c.reply, err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.calls, c.id)
		s.mu.Unlock()
		return wire.Reply{}, ctx.Err()
	}
}

// errNotSent is errEnded of a request that the server cannot have had.
var errNotSent = errors.Join(errEnded)

// replied takes a reply.
func (s *session) replied(b []byte) error {
	a, err := wire.ReadReply(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[a.ID]
	if c == nil { // nobody waits any more
		return nil
	}
	delete(s.calls, a.ID)
	s.m.Answered(a.Clock, c.asked, s.clock())
	if a.Status == wire.OK && a.Entry.Version != 0 {
		s.m.Learn(a.Entry, a.Seq)
	}
	c.reply = a
	c.reply.Value = bytes.Clone(a.Value)
	c.done <- nil
	return nil
}

// change has the server carry out a request that is not to be repeated.
func (c *Client) change(ctx context.Context, op string, q *wire.Request) (wire.Reply, error) {
	if err := checkKey(q.Key); err != nil && q.Op != wire.OpFlush {
		return wire.Reply{}, opError(op, q.Key, err)
	}
	if len(q.Value) > wire.MaxValue {
		return wire.Reply{}, opError(op, q.Key, ErrTooLarge)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		s, err := c.session(ctx)
		if err != nil {
			return wire.Reply{}, opError(op, q.Key, err)
		}
		if err := ctx.Err(); err != nil {
			return wire.Reply{}, opError(op, q.Key, err)
		}
		a, err := s.call(ctx, q)
		switch {
		case err == errNotSent:
			continue
		case errors.Is(err, errEnded):
			return a, opError(op, q.Key, errors.Join(ErrUnknown, s.cause()))
		case err != nil:
			return a, opError(op, q.Key, errors.Join(ErrUnknown, err))
		case a.Status == wire.OK:
			return a, nil
		case a.Status != wire.NoMemory || pause >= 64*time.Millisecond:
			return a, opError(op, q.Key, outcome(a.Status))
		}
		select { // what was freed may be out of quarantine soon
		case <-time.After(pause):
		case <-ctx.Done():
			return a, opError(op, q.Key, errors.Join(ErrNoMemory, ctx.Err()))
		}
	}
}
