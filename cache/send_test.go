package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/internal/wiretest"
	"github.com/goverbs/goverbs/cache/kv"
)

// narrow is a server's end that takes some messages without waiting, and others not, and replies to each
// request.
type narrow struct {
	replies chan []byte

	mu             sync.Mutex
	every          int // message that is not taken without waiting
	posted, writes int
	ids            []uint64
}

func (n *narrow) take(b []byte) error {
	return wiretest.Each(b, func(_ wire.Kind, m []byte) error {
		q, err := wire.ReadRequest(m)
		if err == nil {
			n.ids = append(n.ids, q.ID)
			n.replies <- wire.AppendReply(nil, &wire.Reply{ID: q.ID, Reply: kv.Reply{Status: kv.OK}})
		}
		return err
	})
}

func (n *narrow) Post(_ context.Context, b []byte) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.posted++; n.every > 0 && n.posted%n.every == 0 {
		return false, nil
	}
	return true, n.take(b)
}

func (n *narrow) Write(_ context.Context, b []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes++
	return n.take(b)
}

func (n *narrow) Next(ctx context.Context) ([]byte, error) {
	select {
	case b := <-n.replies:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newNarrowSession returns a session without running goroutines.
func newNarrowSession(t *testing.T, n *narrow) *session {
	c, err := newClient("nobody", Config{})
	require.NoError(t, err)
	s := &session{
		c: c, by: RDMA, begun: time.Now(), m: mirror.New(mirror.Config{}), wake: make(chan struct{}, 1), room: make(chan struct{}),
		over: make(chan struct{}), idle: make(chan struct{}), calls: map[uint64]*call{}, conn: n,
	}
	s.live, s.stop = context.WithCancel(c.ctx)
	return s
}

// A caller sends its request, or has it sent when that takes waiting: each request is sent once, in the order
// in which they were begun, however many goroutines call.
func TestRequestsAreSentOnceAndInOrder(t *testing.T) {
	const callers, each = 8, 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, every := range []int{0, 1, 2, 7} {
		n := &narrow{replies: make(chan []byte, callers*each+1), every: every}
		s := newNarrowSession(t, n)
		s.run()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					_, err := s.call(ctx, &wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		s.end(ErrClosed)
		s.running.Wait()
		require.Len(t, n.ids, callers*each)
		for i, id := range n.ids {
			require.EqualValues(t, i+1, id)
		}
		if every == 1 {
			require.Positive(t, n.writes, "nothing can be posted")
		}
	}
}

// A single caller needs no goroutine that sends.
func TestOneCallerSendsForItself(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newNarrowSession(t, &narrow{replies: make(chan []byte, 1)})
	s.running.Go(func() { s.end(s.receive()) })
	for range 100 {
		_, err := s.call(ctx, &wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}})
		require.NoError(t, err)
	}
	s.end(ErrClosed)
	s.running.Wait()
}

// A session does not keep the memory in which it sent long values.
func TestMemoryOfLongValuesIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNarrowSession(t, &narrow{replies: make(chan []byte, 1), every: 1})
		s.run()
		for range 2 {
			_, err := s.call(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("key"), Value: make([]byte, 3*maxOut)}})
			require.NoError(t, err)
			synctest.Wait()
			s.mu.Lock()
			require.LessOrEqual(t, cap(s.out), 2*maxOut)
			s.mu.Unlock()
		}
		s.end(ErrClosed)
		s.running.Wait()
	})
}
