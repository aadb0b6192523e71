package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A session with a member of a cluster goes on without calls, and while the member sends anything. It ends when a call
// waits for a member that is silent, which then has not replied to a request for a grant either.
func TestHungMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := offline(t, Config{})
		s.over, s.idle = make(chan struct{}), make(chan struct{})
		s.live, s.stop = context.WithCancel(t.Context())
		s.mu.Lock()
		s.placed = true
		s.watchMember()
		s.mu.Unlock()
		time.Sleep(time.Hour)
		require.False(t, s.ended.Load(), "no call waits")

		c, err := s.start(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("a")}})
		require.NoError(t, err)
		for range 100 {
			s.heard.Store(true)
			time.Sleep(hungLook / 2)
		}
		require.False(t, s.ended.Load(), "the member sends something")
		require.Zero(t, s.c.count.grants.Load())

		begun := time.Now()
		_, err = s.wait(t.Context(), c)
		require.ErrorIs(t, err, errEnded)
		require.ErrorIs(t, s.unknown(err), ErrOutcomeUnknown)
		require.ErrorIs(t, s.cause(), errHung)
		require.GreaterOrEqual(t, time.Since(begun), hungAfter)
		require.LessOrEqual(t, time.Since(begun), hungAfter+2*hungLook)
		require.EqualValues(t, 1, s.c.count.grants.Load(), "it is asked what it replies to at once")
	})
}

// oneMap is a connection that brings the beginning of a map, and then nothing.
type oneMap struct{ b []byte }

func (o *oneMap) Write(context.Context, []byte) error { return nil }

func (o *oneMap) Next(ctx context.Context) ([]byte, error) {
	b := o.b
	if o.b = nil; b == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b, nil
}

// A session ends by that if the map says that the server is a member, and goes on with a server that is none.
func TestHungServer(t *testing.T) {
	for _, member := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			_, s := offline(t, Config{})
			s.m, s.conn = mirror.New(mirror.Config{}), &oneMap{wire.AppendMap(nil, &wire.Map{Epoch: 1, Clock: 1, Granted: member})}
			s.first, s.over, s.idle = make(chan struct{}), make(chan struct{}), make(chan struct{})
			s.live, s.stop = context.WithCancel(t.Context())
			defer s.stop()
			go func() { _ = s.receive() }()
			<-s.first
			c, err := s.start(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("a")}})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err = s.wait(ctx, c)
			if member {
				require.ErrorIs(t, err, errEnded)
				require.ErrorIs(t, s.cause(), errHung)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.False(t, s.ended.Load())
			}
		})
	}
}
