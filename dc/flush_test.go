//go:build linux && cgo

package dc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFlushOfWhatWasNotPosted: requests that fail or are taken back while they wait for
// their target end the wait for them, though no goroutine polls then.
func TestFlushOfWhatWasNotPosted(t *testing.T) {
	for name, end := range map[string]func(*Initiator, *Peer){
		"failed": func(i *Initiator, p *Peer) {
			i.mu.Lock()
			i.outside++ // as by an alarm
			i.failQueue(p, ErrUnreachable)
			i.outside--
			i.unlock()
		},
		"canceled": func(i *Initiator, p *Peer) {
			n, err := i.Cancel(p, 1)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			i, h, p := newHeld(t, InitiatorConfig{})
			close(h.halting)
			h.ring = newRing(1)
			h.ring.tail++ // no room
			_, err := i.Post(p, Request{ID: 1})
			require.NoError(t, err)
			flushed := flushing(t, i, p)
			time.Sleep(20 * time.Millisecond) // it is parked
			end(i, p)
			flushed()
			require.NoError(t, i.Close())
		})
	}
}

// TestFlushIsNotEarly: a later request that is taken back does not end the wait for the
// earlier ones.
func TestFlushIsNotEarly(t *testing.T) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	h.ring = newRing(1)
	_, err := i.Post(p, Request{ID: 1})
	require.NoError(t, err)
	flushed := flushing(t, i, p)
	_, err = i.Post(p, Request{ID: 2})
	require.NoError(t, err)
	n, err := i.Cancel(p, 2)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	i.mu.Lock()
	require.EqualValues(t, 1, p.a.flushes[0].left)
	i.outside++
	i.finish(h.ring.at(0), nil)
	i.outside--
	i.unlock()
	flushed()
	require.NoError(t, i.Close())
}

// flushing calls Flush in a goroutine, and returns a function that waits for its end.
func flushing(t *testing.T, i *Initiator, p *Peer) (wait func()) {
	flushed := make(chan error, 1)
	go func() { flushed <- i.Flush(context.Background(), p) }()
	require.Eventually(t, func() bool { i.mu.Lock(); defer i.mu.Unlock(); return len(i.doers) == 1 }, time.Minute, time.Millisecond)
	return func() {
		t.Helper()
		select {
		case err := <-flushed:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Error("Flush waits for nothing")
		}
	}
}
