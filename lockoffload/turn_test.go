package lockoffload

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEventWakesAll(t *testing.T) {
	var e event
	for range 200 {
		require.False(t, e.happened())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { <-e.done() })
		}
		e.happen()
		wg.Wait()
		require.True(t, e.happened())
		<-e.done()
		e.reset()
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		e.happen()
		<-e.done()
		e.reset()
	}), "when nobody has to wait")
}

// One at a time has the turn, some give up waiting, and none of the others is
// forgotten: the test would not end.
func TestTurnIsNeverLost(t *testing.T) {
	u := newTurn()
	gone := make(chan struct{})
	close(gone)
	var inside, had atomic.Int32
	var wg sync.WaitGroup
	const each = 5000
	for range 4 {
		wg.Go(func() {
			for i := range each {
				if i%3 == 0 && !u.take(nil, gone) {
					continue
				} else if i%3 != 0 {
					require.True(t, u.take(nil, nil))
				}
				require.EqualValues(t, 1, inside.Add(1))
				inside.Add(-1)
				had.Add(1)
				u.release()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, had.Load(), int32(4*each*2/3))
	require.True(t, u.try())
	require.False(t, u.try())
	require.False(t, u.take(gone, nil))
}
