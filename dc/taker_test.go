//go:build linux && cgo

package dc

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counted is a context that does not end, and counts the functions registered for its end.
type counted struct {
	context.Context
	done chan struct{}
	live atomic.Int32
}

func (c *counted) Done() <-chan struct{} { return c.done }

func (c *counted) AfterFunc(func()) (stop func() bool) {
	c.live.Add(1)
	return func() bool {
		c.live.Add(-1)
		return true
	}
}

// TestWaitLeavesNothing in a context that lives on: however often it was waited with,
// one registration for each goroutine that waits is left, and none after Close.
func TestWaitLeavesNothing(t *testing.T) {
	for name, waiting := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		t.Run(name, func(t *testing.T) { waitLeavesNothing(t, waiting) })
	}
}

func waitLeavesNothing(t *testing.T, waiting bool) {
	i, h, p := newHeld(t, InitiatorConfig{})
	close(h.halting)
	ctx := &counted{Context: context.Background(), done: make(chan struct{})}
	wait := func() (ended <-chan error) {
		done := make(chan error, 1)
		go func() {
			_, err := i.Wait(ctx, make([]Completion, 1))
			done <- err
		}()
		require.Eventually(t, func() bool { i.mu.Lock(); defer i.mu.Unlock(); return len(i.takers) == 1 }, time.Minute, time.Millisecond)
		return done
	}
	for range 10 {
		_, err := i.Post(p, Request{})
		require.NoError(t, err)
		ended := wait()
		i.mu.Lock()
		i.outside++ // without a poll
		i.finish(h.ring.at(h.ring.head), nil)
		i.outside--
		h.ring.head++
		i.unlock()
		require.NoError(t, <-ended)
		runtime.GC() // which empties pools
		runtime.GC()
	}
	require.EqualValues(t, 1, ctx.live.Load())
	if waiting {
		ended := wait()
		require.NoError(t, i.Close())
		require.ErrorIs(t, <-ended, ErrClosed)
	} else {
		require.NoError(t, i.Close())
	}
	require.Zero(t, ctx.live.Load())
}
