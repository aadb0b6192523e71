package verbs

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParentRefusesToCloseBeforeItsChildren(t *testing.T) {
	var parent, child life
	parent.label = "parent"
	require.NoError(t, child.born("qp", "child", &parent))
	ok := func() error { return nil }

	err := parent.close("pd", nil, ok)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "map[qp:1]")
	require.True(t, parent.enter(), "a refused close leaves it usable")
	parent.exit()

	require.NoError(t, child.close("qp", nil, ok))
	require.NoError(t, child.close("qp", nil, ok), "twice is fine")
	require.NoError(t, parent.close("pd", nil, ok))
	require.ErrorIs(t, new(life).born("mr", "late", &parent), ErrClosed)
	require.False(t, parent.enter())
}

func TestBirthThatFailsReleasesTheOtherParents(t *testing.T) {
	var open, closed life
	require.NoError(t, closed.close("cq", nil, func() error { return nil }))
	require.ErrorIs(t, new(life).born("qp", "x", &open, &closed), ErrClosed)
	require.NoError(t, open.close("pd", nil, func() error { return nil }), "nothing is left on it")
}

func TestFailedCloseCanBeRepeated(t *testing.T) {
	var l life
	busy := errors.New("busy")
	require.ErrorIs(t, l.close("mr", nil, func() error { return busy }), busy)
	require.True(t, l.enter())
	l.exit()
	require.NoError(t, l.close("mr", nil, func() error { return nil }))
}

// What calls use is gone and something else of it is not: nobody uses it again,
// and the rest can still be had away.
func TestHalfDestroyedIsClosedToCallers(t *testing.T) {
	var parent, l life
	require.NoError(t, l.born("cq", "cq", &parent))
	busy := errors.New("busy")
	for range 2 {
		require.ErrorIs(t, l.close("cq", nil, func() error { l.ruin(); return busy }), busy)
		require.False(t, l.enter())
	}
	require.ErrorIs(t, parent.close("device", nil, func() error { return nil }), ErrInUse)
	require.NoError(t, l.close("cq", nil, func() error { return nil }))
	require.False(t, l.enter())
	require.NoError(t, parent.close("device", nil, func() error { return nil }))
}

// A call under way is never overtaken by the destruction of its object.
func TestCloseWaitsForCallers(t *testing.T) {
	for range 200 {
		var l life
		var destroyed atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for l.enter() {
					if destroyed.Load() {
						t.Error("inside a destroyed object")
					}
					l.exit()
				}
			})
		}
		require.NoError(t, l.close("qp", nil, func() error { destroyed.Store(true); return nil }))
		wg.Wait()
	}
}

// Whoever closes second waits for the first and learns how it ended.
func TestConcurrentCloseIsOneClose(t *testing.T) {
	for _, failing := range []int32{0, 1, 3} {
		var l life
		var destroyed, calls atomic.Int32
		busy := errors.New("busy")
		start := make(chan struct{})
		errs := make(chan error, 8)
		for range 8 {
			go func() {
				<-start
				err := l.close("qp", nil, func() error {
					if calls.Add(1) <= failing {
						return busy
					}
					time.Sleep(time.Millisecond)
					destroyed.Add(1)
					return nil
				})
				if err == nil && destroyed.Load() == 0 {
					t.Error("Close has answered before the object was destroyed")
				}
				errs <- err
			}()
		}
		close(start)
		failed := int32(0)
		for range 8 {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, busy)
				failed++
			}
		}
		require.Equal(t, failing, failed, "each failure is told to the one whose Close it was")
		require.EqualValues(t, 1, destroyed.Load())
	}
}
