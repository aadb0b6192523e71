package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/verbs"
)

// What arrives is taken, by one goroutine at a time, none of which is there when nothing does; not
// before the inbox is open, nor after it was closed.
func TestInbox(t *testing.T) {
	var c workers
	defer c.close()
	var there, taken, at atomic.Int32
	b := newInbox(&c, func() {
		require.EqualValues(t, 1, at.Add(1), "one at a time")
		taken.Add(there.Swap(0))
		at.Add(-1)
	})
	all := func(n int) bool { return int(taken.Load()) == n }
	there.Add(1)
	b.arrived()
	time.Sleep(time.Millisecond)
	require.True(t, all(0))
	b.open()
	require.Eventually(t, func() bool { return all(1) }, patient, time.Millisecond)
	var many sync.WaitGroup
	for range 4 {
		many.Go(func() {
			for range 5000 {
				there.Add(1)
				b.arrived()
			}
		})
	}
	many.Wait()
	require.Eventually(t, func() bool { return all(20_001) }, patient, time.Millisecond)
	b.running.Wait() // no worker runs
	b.close()
	there.Add(1)
	b.arrived()
	b.close()
	require.True(t, all(20_001))

	b = newInbox(&c, func() { t.Error("it was closed before it was open") })
	b.arrived()
	b.close()
	b.open()
	b.close()
}

// closer is what may fail to close.
type closer func() error

func (c closer) Close() error { return c() }

// What a client could READ leaves quarantine when its queue pairs are destroyed, and not when that fails: then
// it is tried again.
func TestQuarantineUntilQueuePairsAreDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer s.Close()
		busy, tries := errors.New("busy"), 0
		comes := func() *linked {
			k := &linked{s: s, link: &verbs.Link{}, messages: &sharedQueue{}}
			k.id, k.c = s.attach(func(error) {}, true)
			s.put(t, 1)
			s.put(t, 1)
			require.Positive(t, s.Stats().Quarantine)
			return k
		}
		k := comes()
		require.NoError(t, k.link.AddCloser(closer(func() error {
			require.Positive(t, s.Stats().Quarantine)
			if tries++; tries < 3 {
				return busy
			}
			return nil
		})))
		require.NoError(t, k.close(t.Context(), nil))
		require.Equal(t, 3, tries)
		require.Zero(t, s.Stats().Quarantine)

		k = comes()
		require.NoError(t, k.link.AddCloser(closer(func() error { return busy })))
		serving, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.ErrorIs(t, k.close(serving, nil), busy)
		require.Positive(t, s.Stats().Quarantine)
	})
}

// The same holds for the target that many clients READ through.
func TestQuarantineUntilTargetIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := tablesRig(t, func(int) error { return nil })
		defer s.Close()
		gone, _ := s.attachThrough(func(error) {}, greet.Seal{})
		s.put(t, 1)
		s.put(t, 1)
		s.depart(gone)
		s.through.fence.Opened()
		tries := 0
		s.retire(closer(func() error {
			require.Positive(t, s.Stats().Quarantine)
			if tries++; tries < 3 {
				return errors.New("busy")
			}
			return nil
		}))
		require.Equal(t, 3, tries)
		require.Zero(t, s.Stats().Quarantine)
		require.Zero(t, s.Stats().DC.Gone)
	})
}

// close waits for the worker that takes what came, which may be for as long as that lasts.
func TestInboxCloses(t *testing.T) {
	var c workers
	defer c.close()
	begun, over := make(chan struct{}), make(chan struct{})
	var done atomic.Bool
	b := newInbox(&c, func() {
		close(begun)
		<-over
		done.Store(true)
	})
	b.arrived()
	b.open()
	<-begun
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b.close()
	}()
	for overYet := false; !overYet; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		overYet = b.over
		b.mu.Unlock()
	}
	b.arrived() // is not taken any more
	select {
	case <-closed:
		t.Error("it did not wait")
	case <-time.After(10 * time.Millisecond):
	}
	close(over)
	<-closed
	require.True(t, done.Load())
}
