package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/advice"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// lastMap returns the last beginning of a map that a client was sent.
func (l *listener) lastMap(t *testing.T) wire.Map {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	m, err := wire.ReadMap(l.begin)
	require.NoError(t, err)
	return m
}

// chooses has the client of an id send its choice.
func (s *Server) chooses(t *testing.T, id uint64, m wire.Mode) {
	_, err := s.take(id, s.clients[id], wire.AppendMode(nil, m))
	require.NoError(t, err)
	synctest.Wait()
}

func (s *Server) seq() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Seq()
}

func (s *Server) tableMoved() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.TableMoved() > 0
}

// A client that probes is told no change. It hears of the server when that wants to know how far the client is, and
// when the table has moved; then it knows what there is to know. When it wants a map it is sent the whole of it.
func TestClientThatProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		require.False(t, l.lastMap(t).Alone)
		s.put(t, 0)
		s.chooses(t, 1, wire.Probed)
		require.True(t, l.lastMap(t).Alone)
		require.EqualValues(t, 1, l.lastMap(t).Seq)
		require.Equal(t, 1, s.Stats().Modes[ModeNone])
		heard := l.heard()
		s.chooses(t, 1, wire.Probed)
		for i := range 1000 {
			s.put(t, i)
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, heard, l.heard())
		s.mu.Lock()
		s.askAll()
		s.askAll()
		s.mu.Unlock()
		require.EqualValues(t, s.seq(), l.lastMap(t).Seq)
		require.Equal(t, heard+1, l.heard())
		before := l.lastMap(t).Table
		for i := 0; !s.tableMoved(); i++ {
			s.put(t, i)
			if i%100 == 0 {
				synctest.Wait() // for the memory of the table
			}
		}
		time.Sleep(time.Second)
		require.NotEqual(t, before, l.lastMap(t).Table)
		require.Greater(t, l.heard(), heard+1)

		deltas := l.changes()
		s.chooses(t, 1, wire.Streamed)
		require.False(t, l.lastMap(t).Alone)
		require.Equal(t, s.Stats().Items, l.entries(), "the whole map")
		require.Equal(t, deltas, l.changes())
		require.Zero(t, s.Stats().Modes[ModeNone])
		s.put(t, 0)
		time.Sleep(time.Second)
		require.Equal(t, deltas+1, l.changes())
		s.heard(t)

		_, c := s.attach(func(error) {}, false)
		_, err := s.take(2, c, wire.AppendMode(nil, wire.Probed))
		require.ErrorIs(t, err, wire.Malformed, "it READs nothing")
	})
}

// Clients that have made no choice follow the advice, also the one that was there before them: all at once when
// they are to probe, and one after the other when they are to have maps.
func TestClientsFollowTheAdvice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		s.chooses(t, 1, wire.Streamed)
		attach := func() *client {
			_, c := s.attach(func(error) {}, true)
			return c
		}
		for range 3 {
			require.False(t, attach().probes())
		}
		_, none := s.attach(func(error) {}, false)
		now, load := time.Duration(0), advice.Load{Clients: 1000}
		observe := func(probes bool) {
			for s.advice.Probes() != probes {
				now += 5 * time.Second
				if probes {
					load.Changes += 1e6
				}
				s.advice.Observe(now, load)
			}
		}
		observe(true)
		require.True(t, attach().probes())
		s.running.Go(s.tick)
		time.Sleep(longTick + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 4, s.Stats().Modes[ModeNone])
		s.mu.Lock()
		require.False(t, s.clients[1].probes())
		require.False(t, none.advised)
		s.mu.Unlock()
		require.False(t, l.lastMap(t).Alone)
		s.chooses(t, 1, wire.Advised)
		time.Sleep(longTick)
		require.True(t, l.lastMap(t).Alone)
		require.Equal(t, 5, s.Stats().Modes[ModeNone])
		s.mu.Lock()
		observe(false)
		s.mu.Unlock()
		for left := 4; left >= 0; left-- {
			time.Sleep(longTick)
			synctest.Wait()
			require.Equal(t, left, s.Stats().Modes[ModeNone])
		}
		require.False(t, l.lastMap(t).Alone)
		s.stop()
	})
}
