package cache

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/backoff"
)

// call is a request that waits for its reply. While it is in the session's calls the goroutine that receives
// has it, or the one that ends the session: it takes the call out, sets reply, and sends to done once. After that,
// or when it has taken the call out itself, the goroutine that waits has it.
type call struct {
	id    uint64
	op    latency.Op
	begun time.Duration // by elapsed
	reply wire.Reply
	done  chan error // has room for one
	next  *call      // that is not in use
}

// call sends a request and returns its reply. The reply's value belongs to the caller.
// The error is errEnded if no reply will come.
func (s *session) call(ctx context.Context, q *wire.Request) (wire.Reply, error) {
	c, err := s.start(ctx, q)
	if err != nil {
		return wire.Reply{}, err
	}
	return s.wait(ctx, c)
}

// start sends a request, and returns the call to wait for. An error means that it was not sent. If ctx has
// ended it is not sent: the reply might otherwise arrive before wait looks at ctx.
func (s *session) start(ctx context.Context, q *wire.Request) (*call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.queue(ctx, q)
	s.push()
	return c, err
}

// queue appends a request to what is sent, together, when the session is poked next. mu must
// be held; it is released while queue waits for room. A value that is longer than the server accepts is refused
// here: the server would end the connection, and with it other callers' requests, since it does not read through
// a message that is much longer.
func (s *session) queue(ctx context.Context, q *wire.Request) (*call, error) {
	if s.longest > 0 && len(q.Value) > s.longest {
		return nil, ErrTooLarge
	}
	for len(s.out) > maxOut && !s.ended.Load() { // the server does not take them
		room := s.room
		s.signal()
		s.mu.Unlock()
		select {
		case <-room:
		case <-s.over:
		case <-ctx.Done():
			s.mu.Lock()
			return nil, ctx.Err()
		}
		s.mu.Lock()
	}
	if s.ended.Load() {
		return nil, errNotSent
	}
	c := s.unused
	if c == nil {
		c = &call{done: make(chan error, 1)}
	} else {
		s.unused, c.next = c.next, nil
	}
	s.last++
	q.ID, q.Epoch = s.last, s.m.Epoch()
	c.id, c.op, c.begun = q.ID, latency.Of(&q.Request), s.elapsed()
	s.calls[q.ID] = c
	s.out = wire.AppendRequest(s.out, q)
	s.c.count.calls.Add(1)
	return c, nil
}

// wait returns the reply of a call, which must not be used any more.
func (s *session) wait(ctx context.Context, c *call) (a wire.Reply, err error) {
	came := true
	select {
	case err = <-c.done:
		if err == nil {
			s.took(c.op, c.begun)
		}
	case <-ctx.Done():
		came, err = false, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case came:
		a = c.reply
	case s.calls[c.id] == c:
		delete(s.calls, c.id)
	default:
		<-c.done
	}
	c.reply = wire.Reply{}
	c.next, s.unused = s.unused, c
	return a, err
}

// errNotSent is errEnded of a request that the server cannot have had.
var errNotSent = errors.Join(errEnded)

// replied hands a reply to its caller.
func (s *session) replied(b []byte) error {
	a, err := wire.ReadReply(b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[a.ID]
	if c == nil { // its caller has stopped waiting
		return nil
	}
	delete(s.calls, a.ID)
	s.m.Replied(a.Clock, milliseconds(c.begun), s.clock())
	if a.ID == s.granter {
		return s.granted(&a)
	}
	if a.Status == wire.WrongServer {
		s.c.told.CompareAndSwap(s.before, noPlacement)
	}
	if s.by != TCP && a.Status == kv.OK && a.Entry.Version != 0 {
		s.m.Learn(a.Entry, a.Seq)
	}
	if a.Status == kv.NoMemory && s.by != TCP { // it may be this client that holds it up
		s.tell = true
		s.signal()
	}
	c.reply = a
	c.reply.Value = bytes.Clone(a.Value)
	c.done <- nil
	return nil
}

// change is carryOut of a request that takes a record which a loader has reserved for none.
func (c *Client) change(ctx context.Context, op string, q *wire.Request) (wire.Reply, error) {
	q.Want |= kv.WantStored
	return c.carryOut(ctx, op, q)
}

// carryOut calls the server with a request that must not be repeated after a lost reply.
func (c *Client) carryOut(ctx context.Context, op string, q *wire.Request) (wire.Reply, error) {
	if err := checkRequest(q); err != nil {
		return wire.Reply{}, opError(op, q.Key, err)
	}
	pause := backoff.New(shortPause, longPause)
	for left := memoryRetries; ; {
		s, err := c.session(ctx)
		if err != nil {
			return wire.Reply{}, opError(op, q.Key, err)
		}
		k, err := s.start(ctx, q)
		if err == errNotSent {
			continue
		}
		if err != nil {
			return wire.Reply{}, opError(op, q.Key, err)
		}
		a, err := s.wait(ctx, k)
		switch {
		case err != nil:
			return a, opError(op, q.Key, s.unknown(err))
		case a.Status == kv.OK:
			return a, nil
		case a.Status != kv.NoMemory || left == 0:
			return a, opError(op, q.Key, outcome(a.Status))
		}
		left--
		if err := pause.Wait(ctx); err != nil { // what was freed may be out of quarantine soon
			return a, opError(op, q.Key, errors.Join(ErrNoMemory, err))
		}
	}
}

// How often what the server has no memory for is tried again, and the pauses before that.
const (
	memoryRetries = 6
	shortPause    = time.Millisecond
	longPause     = 32 * time.Millisecond
)

func checkRequest(q *wire.Request) error {
	if len(q.Value) > wire.MaxValue {
		return ErrTooLarge
	}
	if q.Op >= kv.OpFlush {
		return nil
	}
	return checkKey(q.Key)
}

// unknown returns the error of a change that was sent, and got no reply.
func (s *session) unknown(err error) error {
	if errors.Is(err, errEnded) {
		err = s.cause()
	}
	return errors.Join(ErrOutcomeUnknown, err)
}
