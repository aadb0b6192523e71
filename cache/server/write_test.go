package server

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/internal/wiretest"
	"github.com/goverbs/goverbs/cache/kv"
)

// narrow is a connection that takes some messages without waiting, and others not.
type narrow struct {
	listener
	room int // for so many posts

	mu             sync.Mutex
	posted, writes int
	replies        []uint64
}

func (n *narrow) take(b []byte) error {
	return wiretest.Each(b, func(kind wire.Kind, m []byte) error {
		if kind != wire.KindReply {
			return nil
		}
		a, err := wire.ReadReply(m)
		n.replies = append(n.replies, a.ID)
		return err
	})
}

func (n *narrow) Post(_ context.Context, b []byte) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.room == 0 {
		return false, nil
	}
	n.room--
	n.posted++
	return true, n.take(b)
}

func (n *narrow) Write(_ context.Context, b []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes++
	return n.take(b)
}

// The goroutine that takes a client's messages sends the replies, to all that are there together, and
// does not wait: what cannot be posted is written by another goroutine, before all that follows.
func TestReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer func() { require.NoError(t, s.Close()) }()
		ctx, cut := context.WithCancelCause(t.Context())
		id, c := s.attach(cut, false)
		c.replied = true
		n := &narrow{room: 1000}
		s.connected(ctx, n, c)
		synctest.Wait()
		require.Equal(t, 1, n.posted, "that it is let in")
		var last uint64
		ask := func(many int) {
			t.Helper()
			require.NoError(t, s.read(ctx, func(context.Context) ([]byte, error) {
				if many--; many < 0 {
					return nil, nil
				}
				last++
				return wire.AppendRequest(nil, &wire.Request{ID: last, Epoch: s.epoch, Request: kv.Request{Op: kv.OpSet, Key: []byte("key"), Value: []byte("value")}}), nil
			}, id, c))
		}
		ask(3)
		require.Equal(t, 2, n.posted, "three replies in one message, by this goroutine")
		require.Len(t, n.replies, 3)
		ask(3 * receives)
		require.GreaterOrEqual(t, n.posted, 4, "nobody waits for the last one of many")
		require.Zero(t, n.writes)
		for room := range 4 {
			n.room = room
			ask(4 * receives)
			synctest.Wait()
		}
		require.Positive(t, n.writes)
		require.EqualValues(t, last, len(n.replies))
		for i, id := range n.replies {
			require.EqualValues(t, i+1, id, "in order")
		}
		cut(nil)
		require.NoError(t, s.disconnected(c))
		n.room = 1
		ask2 := len(n.replies)
		s.sendReplies(c)
		require.Len(t, n.replies, ask2, "nothing is sent after the end")
		s.detach(id)
	})
}

// gated is a connection with a Write that takes as long as a test likes.
type gated struct {
	*narrow
	begun, gate chan struct{}
}

func (g gated) Write(ctx context.Context, b []byte) error {
	close(g.begun)
	<-g.gate
	return g.narrow.Write(ctx, b)
}

// While one goroutine writes what could not be posted, the one that takes messages sends nothing, and what it
// has for the client goes behind that.
func TestOneSendsAtATime(t *testing.T) {
	s, _ := tablesRig(t, func(int) error { return nil })
	defer func() { require.NoError(t, s.Close()) }()
	ctx, cut := context.WithCancelCause(t.Context())
	id, c := s.attach(cut, false)
	c.replied, c.begun = true, true
	n := &narrow{}
	g := gated{n, make(chan struct{}), make(chan struct{})}
	s.connected(ctx, g, c)
	ask := func(n uint64) {
		b := wire.AppendRequest(nil, &wire.Request{ID: n, Epoch: s.epoch, Request: kv.Request{Op: kv.OpGet, Key: []byte("key")}})
		_, err := s.take(id, c, b)
		require.NoError(t, err)
		s.sendReplies(c)
	}
	ask(1)
	<-g.begun
	n.mu.Lock()
	n.room = 100
	n.mu.Unlock()
	ask(2)
	ask(3)
	n.mu.Lock()
	posted := n.posted
	n.mu.Unlock()
	require.Zero(t, posted)
	close(g.gate)
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.replies) == 3
	}, time.Minute, time.Millisecond)
	require.Equal(t, []uint64{1, 2, 3}, n.replies)
	cut(nil)
	require.NoError(t, s.disconnected(c))
	s.detach(id)
}

// granted is a connection that writes only when the reader of the client's messages has heard that it may.
type granted struct {
	*narrow
	room chan struct{}
}

func (g granted) Post(context.Context, []byte) (bool, error) { return false, nil }

func (g granted) Write(ctx context.Context, b []byte) error {
	select {
	case <-g.room:
		return g.narrow.Write(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A client grants room for long replies by what it sends. That is heard also while its requests wait because too
// many replies do.
func TestRoomIsGrantedWhileRequestsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer func() { require.NoError(t, s.Close()) }()
		ctx, cut := context.WithCancelCause(t.Context())
		id, c := s.attach(cut, false)
		c.replied, c.begun = true, true
		g := granted{&narrow{}, make(chan struct{}, 1)}
		c.hear = func() error { signal(g.room); return nil }
		s.connected(ctx, g, c)
		_, err := s.Do(ctx, &kv.Request{Op: kv.OpSet, Key: []byte("key"), Value: make([]byte, 60<<10)})
		require.NoError(t, err)
		const many = 5 * maxReplies / (60 << 10)
		read, asked := make(chan error, 1), uint64(0)
		go func() {
			read <- s.read(ctx, func(context.Context) ([]byte, error) {
				if asked++; asked > many {
					return nil, nil
				}
				return wire.AppendRequest(nil, &wire.Request{ID: asked, Epoch: s.epoch, Request: kv.Request{Op: kv.OpGet, Key: []byte("key")}}), nil
			}, id, c)
		}()
		for len(read) == 0 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			signal(c.room) // something has arrived
			require.Less(t, time.Since(s.begun), time.Hour)
		}
		require.NoError(t, <-read)
		for len(g.replies) < many {
			signal(g.room)
			synctest.Wait()
		}
		cut(nil)
		require.NoError(t, s.disconnected(c))
		s.detach(id)
	})
}
