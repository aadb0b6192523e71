package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// A flush is acknowledged when the client that READs has left it behind, for which it is asked, to a gateway and to
// that client itself; others are served meanwhile. It ends with the server, too.
func TestFlushWaitsForClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		flush := &kv.Request{Op: kv.OpFlush}
		var id uint64
		var c *client
		for id, c = range s.clients {
		}
		acknowledged := 0
		begin := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := s.Do(ctx, flush)
				done <- err
			}()
			return done
		}
		for n := range 3 {
			s.put(t, n)
			asks := l.asks()
			done := begin(t.Context())
			_, err := s.take(id, c, wire.AppendRequest(nil, &wire.Request{Request: *flush}))
			require.NoError(t, err)
			time.Sleep(10 * announceAfter)
			require.Greater(t, l.asks(), asks+3)
			require.Empty(t, done)
			require.Equal(t, acknowledged, l.replies())
			s.put(t, n)
			s.heard(t)
			time.Sleep(2 * announceAfter)
			require.NoError(t, <-done)
			acknowledged++
			require.Equal(t, acknowledged, l.replies())
			require.Equal(t, 1, s.Stats().Items)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := begin(ctx)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		done = begin(t.Context())
		synctest.Wait()
		s.stop()
		require.ErrorIs(t, <-done, ErrClosed)
	})
}

// Requests that wait for other clients take memory, so a client has a limited number of them.
func TestFlushesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := told(t)
		var id uint64
		var c *client
		for id, c = range s.clients {
		}
		flush := wire.AppendRequest(nil, &wire.Request{Request: kv.Request{Op: kv.OpFlush}})
		for n := 1; n < 3; n++ {
			s.put(t, 1)
			for range maxFlushes {
				_, err := s.take(id, c, flush)
				require.NoError(t, err)
			}
			if n == 2 {
				_, err := s.take(id, c, flush)
				require.Equal(t, errFlushes, err)
			}
			s.heard(t)
			time.Sleep(2 * announceAfter)
			s.mu.Lock()
			require.Empty(t, s.flushes)
			s.mu.Unlock()
			require.GreaterOrEqual(t, l.replies(), n*maxFlushes)
		}
	})
}
