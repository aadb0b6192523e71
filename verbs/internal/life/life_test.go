package life

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/operr"
)

func TestParentRefusesToCloseBeforeItsChildren(t *testing.T) {
	var parent, child Life
	parent.Label = "parent"
	require.NoError(t, child.Attach("qp", "child", &parent))
	require.NoError(t, parent.AddChild("mr"))
	require.NoError(t, parent.AddChild("mr"))
	ok := func() error { return nil }

	err := parent.Close("pd", nil, ok)
	require.ErrorIs(t, err, operr.ErrInUse)
	require.ErrorContains(t, err, "parent: in use (still open: 2 mr, 1 qp)")
	require.True(t, parent.Enter(), "a refused close leaves it usable")
	parent.Exit()

	parent.RemoveChild("mr")
	parent.RemoveChild("mr")
	require.NoError(t, child.Close("qp", nil, ok))
	require.NoError(t, child.Close("qp", nil, ok), "twice is fine")
	require.NoError(t, parent.Close("pd", nil, ok))
	require.ErrorIs(t, new(Life).Attach("mr", "late", &parent), operr.ErrClosed)
	require.False(t, parent.Enter())
}

func TestBirthThatFailsReleasesTheOtherParents(t *testing.T) {
	var open, closed Life
	require.NoError(t, closed.Close("cq", nil, func() error { return nil }))
	require.ErrorIs(t, new(Life).Attach("qp", "x", &open, &closed), operr.ErrClosed)
	require.NoError(t, open.Close("pd", nil, func() error { return nil }), "nothing is left on it")
}

func TestFailedCloseCanBeRepeated(t *testing.T) {
	var l Life
	busy := errors.New("busy")
	require.ErrorIs(t, l.Close("mr", nil, func() error { return busy }), busy)
	require.True(t, l.Enter())
	l.Exit()
	require.NoError(t, l.Close("mr", nil, func() error { return nil }))
}

// What calls use is gone and something else of it is not: no call uses it again,
// and the rest can still be destroyed.
func TestHalfDestroyedIsClosedToCallers(t *testing.T) {
	var parent, l Life
	require.NoError(t, l.Attach("cq", "cq", &parent))
	busy := errors.New("busy")
	for range 2 {
		require.ErrorIs(t, l.Close("cq", nil, func() error { l.MarkDestroyed(); return busy }), busy)
		require.False(t, l.Enter())
	}
	require.ErrorIs(t, parent.Close("device", nil, func() error { return nil }), operr.ErrInUse)
	require.NoError(t, l.Close("cq", nil, func() error { return nil }))
	require.False(t, l.Enter())
	require.NoError(t, parent.Close("device", nil, func() error { return nil }))
}

// A call under way is never overtaken by the destruction of its object.
func TestCloseWaitsForCallers(t *testing.T) {
	for range 200 {
		var l Life
		var destroyed atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for l.Enter() {
					if destroyed.Load() {
						t.Error("inside a destroyed object")
					}
					l.Exit()
				}
			})
		}
		require.NoError(t, l.Close("qp", nil, func() error { destroyed.Store(true); return nil }))
		wg.Wait()
	}
}

// A call that Close waits for is in progress to WaitIdle, too.
func TestIdleWhileClosing(t *testing.T) {
	var l Life
	require.True(t, l.Enter())
	closed, idle := make(chan error), make(chan struct{})
	go func() { closed <- l.Close("thing", nil, func() error { return nil }) }()
	require.Eventually(t, l.Closed, time.Minute, time.Millisecond)
	go func() {
		l.WaitIdle()
		close(idle)
	}()
	select {
	case <-idle:
		t.Error("a call is in progress")
	case <-time.After(50 * time.Millisecond):
	}
	l.Exit()
	<-idle
	require.NoError(t, <-closed)
}

// A second Close waits for the first and returns its result.
func TestConcurrentCloseIsOneClose(t *testing.T) {
	for _, failing := range []int32{0, 1, 3} {
		var l Life
		var destroyed, calls atomic.Int32
		busy := errors.New("busy")
		start := make(chan struct{})
		errs := make(chan error, 8)
		for range 8 {
			go func() {
				<-start
				err := l.Close("qp", nil, func() error {
					if calls.Add(1) <= failing {
						return busy
					}
					time.Sleep(time.Millisecond)
					destroyed.Add(1)
					return nil
				})
				if err == nil && destroyed.Load() == 0 {
					t.Error("Close has returned before the object was destroyed")
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
