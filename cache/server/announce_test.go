package server

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/internal/wiretest"
	"github.com/goverbs/goverbs/cache/kv"
)

// listener is a client that says nothing and counts what it is told.
type listener struct {
	mu     sync.Mutex
	times  []time.Time
	asked  int
	told   int    // replies
	begin  []byte // of the last map
	have   int    // entries of it
	deltas int
}

func (l *listener) Write(_ context.Context, b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, time.Now())
	return wiretest.Each(b, func(kind wire.Kind, m []byte) error {
		var d wire.Deltas
		var c wire.Chunk
		switch {
		case kind == wire.KindDeltas && d.Read(m) == nil:
			if l.deltas += len(d.List); len(d.List) == 0 {
				l.asked++
			}
		case kind == wire.KindReply:
			l.told++
		case kind == wire.KindMap:
			l.begin, l.have = bytes.Clone(m), 0
		case kind == wire.KindChunk && c.Read(m) == nil:
			l.have += len(c.Entries)
		}
		return nil
	})
}

func (l *listener) replies() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// changes is how many it was told.
func (l *listener) changes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deltas
}

// entries is how many the map had that began last.
func (l *listener) entries() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.have
}

// asks is how often it was asked how far it is.
func (l *listener) asks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

func (l *listener) Next(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (l *listener) heard() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// told returns a server with a client that it tells of changes, and of nothing else.
func told(t *testing.T) (*Server, *listener) {
	s, _ := tablesRig(t, func(int) error { return nil })
	s.cfg.Lease = time.Hour
	ctx, cut := context.WithCancelCause(t.Context())
	l := &listener{}
	id, c := s.attach(cut, true)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.talk(ctx, l, id, c)
	}()
	t.Cleanup(func() {
		cut(nil)
		<-over
		require.NoError(t, s.Close())
	})
	synctest.Wait()
	require.Positive(t, l.heard(), "the map")
	return s, l
}

// A change is told soon; while there are changes all the time, they are told together.
func TestChangesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		before := l.heard()
		s.put(t, 0)
		time.Sleep(announceAfter + time.Millisecond)
		require.Equal(t, before+1, l.heard())
		time.Sleep(time.Second)
		require.Equal(t, before+1, l.heard(), "there is nothing new")
		s.mu.Lock()
		s.announce()
		due := s.due
		s.mu.Unlock()
		require.False(t, due, "nobody is woken for that")
		before = l.heard()
		for i := range 1000 { // none just when changes are told, which may be in the same message or not
			s.put(t, i)
			time.Sleep(997 * time.Microsecond)
		}
		time.Sleep(announceEvery)
		require.InDelta(t, time.Second/announceEvery, l.heard()-before, 2)
	})
}

// A client that hears of changes by replies is told nothing else, until it calls no more; and neither
// does another one know of a change later for that.
func TestRepliesTellOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, busy := told(t)
		quiet := &listener{}
		ctx, cut := context.WithCancelCause(t.Context())
		id, c := s.attach(cut, true)
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = s.talk(ctx, quiet, id, c)
		}()
		defer func() {
			cut(nil)
			<-over
		}()
		synctest.Wait()
		every, longest := pause(2, s.cfg.Lease), time.Duration(0)
		before, first := busy.heard(), quiet.heard()
		const calls, each = 200, 7 * time.Millisecond
		for i := range calls {
			q := wire.Request{ID: uint64(i), Epoch: 1, Request: kv.Request{Op: kv.OpGet, Key: []byte("none")}}
			_, err := s.take(1, s.clients[1], wire.AppendRequest(nil, &q))
			require.NoError(t, err)
			synctest.Wait()
			s.mu.Lock()
			require.False(t, s.behind(s.clients[1]))
			s.mu.Unlock()
			s.put(t, i) // which busy does not know of until its next call
			time.Sleep(each)
			longest = max(longest, quiet.silence())
		}
		require.Equal(t, before+calls, busy.heard())
		require.InDelta(t, calls*each/every, quiet.heard()-first, 4)
		require.LessOrEqual(t, longest, every+each)
		s.put(t, 0)
		time.Sleep(every)
		synctest.Wait()
		for _, c := range s.clients {
			require.False(t, s.behind(c))
		}
		require.Equal(t, before+calls+1, busy.heard())
	})
}

// silence is for how long it was told nothing.
func (l *listener) silence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.times[len(l.times)-1])
}

// The more clients there are, the longer changes are collected for them, within bounds.
func TestManyClientsAreToldLessOften(t *testing.T) {
	for clients, want := range map[int]time.Duration{
		0: announceEvery, 1: announceEvery, 2: announceEvery, 3: 60 * time.Millisecond, 16: 320 * time.Millisecond, 50: time.Second, 1000: time.Second,
	} {
		require.Equal(t, want, pause(clients, 16*time.Second), clients)
	}
	require.Equal(t, announceEvery, pause(1000, announceEvery))
}

// When much of the memory waits for clients, they are told more often.
func TestChangesAreToldSoonUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		total := s.Stats().Memory
		for i := 0; s.Stats().Quarantine <= total/64; i++ {
			_, err := s.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: fmt.Append(nil, i%8), Value: make([]byte, 10_000)})
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		before := l.heard()
		for i := range 100 {
			s.put(t, i)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(announceAfter)
		require.GreaterOrEqual(t, l.heard()-before, 8)
	})
}

// When much of the memory waits for a client it is asked how far it is, which no message with changes does, but not
// all the time; and one that has said it is asked no more.
func TestClientsAreAskedUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		asks := l.asks()
		s.put(t, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, asks, l.asks(), "there is no pressure")
		total := s.Stats().Memory
		for i := 0; s.Stats().Quarantine <= total/64; i++ {
			_, err := s.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: fmt.Append(nil, i%8), Value: make([]byte, 10_000)})
			require.NoError(t, err)
		}
		time.Sleep(announceAfter + time.Millisecond)
		synctest.Wait()
		require.Equal(t, asks+1, l.asks())
		for range 100 {
			s.mu.Lock()
			s.askAll()
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, asks+1+10, l.asks(), 2, "of the same each announceAfter")
		asks = l.asks()
		for i := range 100 {
			s.put(t, i)
			time.Sleep(5 * time.Millisecond)
		}
		require.InDelta(t, asks+50, l.asks(), 20)
		s.heard(t)
		require.Zero(t, s.Stats().Quarantine)
		time.Sleep(announceAfter + time.Millisecond) // what was asked before is under way no more
		synctest.Wait()
		asks = l.asks()
		for i := range 100 {
			s.put(t, i)
			time.Sleep(5 * time.Millisecond)
		}
		synctest.Wait()
		require.Equal(t, asks, l.asks())
	})
}

// heard has all clients say that they are done with all changes.
func (s *Server) heard(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.clients {
		require.NoError(t, s.store.Heard(id, wire.Horizon{Epoch: 1, Applied: s.store.Seq(), Quiet: s.store.Seq()}))
		require.False(t, s.store.Behind(id))
	}
}

// A client that wants to hear from the server does each sixteenth of the lease, and others hear each
// quarter. What is said anyway counts. One that has not said that it is done with a change is asked each
// eighth, whatever it is told beside that.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		s.cfg.Lease = 16 * time.Second
		const every = 400 * time.Millisecond
		longest := func(span time.Duration) (longest time.Duration) {
			last := time.Now()
			for n, begin := l.heard(), last; time.Since(begin) < span; time.Sleep(every) {
				s.mu.Lock()
				s.beat(time.Now(), every)
				s.mu.Unlock()
				synctest.Wait()
				if now := l.heard(); now > n {
					longest = max(longest, time.Since(last))
					n, last = now, time.Now()
				}
			}
			return max(longest, time.Since(last)-every)
		}
		require.InDelta(t, 4*time.Second, longest(time.Minute), float64(every))
		for _, c := range s.clients {
			c.beats = true
		}
		require.LessOrEqual(t, longest(time.Minute), time.Second)
		for _, c := range s.clients {
			c.beats = false
		}
		s.put(t, 0)
		time.Sleep(announceAfter + time.Millisecond)
		asks := l.asks()
		require.InDelta(t, 2*time.Second, longest(time.Minute), float64(every))
		require.InDelta(t, 30, l.asks()-asks, 8)
		asks = l.asks()
		for i := range 60 {
			s.put(t, i)
			require.LessOrEqual(t, longest(time.Second), time.Second)
		}
		require.InDelta(t, 30, l.asks()-asks, 8, "it hears of changes, and is asked all the same")
		s.heard(t)
		require.InDelta(t, 4*time.Second, longest(time.Minute), float64(every))
		before := l.heard()
		for i := range 60 {
			s.put(t, i)
			s.heard(t)
			time.Sleep(time.Second)
			s.mu.Lock()
			s.beat(time.Now(), every)
			s.mu.Unlock()
			synctest.Wait()
		}
		require.Equal(t, before+60, l.heard())
	})
}

// A client that calls nothing is asked from the beginning, also while changes leave no time without one.
func TestNewClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		s.cfg.Lease = 16 * time.Second
		const every = 400 * time.Millisecond
		before := l.asks()
		for i := range 10 {
			s.put(t, i)
			time.Sleep(every)
			s.mu.Lock()
			s.beat(time.Now(), every)
			s.mu.Unlock()
			synctest.Wait()
		}
		require.InDelta(t, before+3, l.asks(), 1)
	})
}

// A client that says in its calls how far it is, is not asked, also when there is always something
// newer; when it calls no more, it is.
func TestTalkersAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		s.cfg.Lease = 16 * time.Second
		const every = 400 * time.Millisecond
		pass := func(talks bool) {
			s.put(t, 0)
			if talks {
				quiet := s.store.Seq() - 1
				_, err := s.take(1, s.clients[1], wire.AppendHorizon(nil, &wire.Horizon{Epoch: 1, Applied: quiet, Quiet: quiet}))
				require.NoError(t, err)
			}
			time.Sleep(every)
			s.mu.Lock()
			require.True(t, s.store.Behind(1))
			s.beat(time.Now(), every)
			s.mu.Unlock()
			synctest.Wait()
		}
		pass(true)
		before := l.asks()
		for range 100 {
			pass(true)
		}
		require.Equal(t, before, l.asks())
		for range 10 {
			pass(false)
		}
		require.InDelta(t, before+2, l.asks(), 1)
	})
}
