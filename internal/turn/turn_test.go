package turn_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/turn"
)

// One at a time has the turn, some give up waiting, and none of the others is
// forgotten: the test would not end.
func TestTurnIsNeverLost(t *testing.T) {
	u := turn.New()
	gone := make(chan struct{})
	close(gone)
	var inside, had atomic.Int32
	var wg sync.WaitGroup
	const each = 5000
	for range 4 {
		wg.Go(func() {
			for i := range each {
				if i%3 == 0 && !u.Take(nil, gone) {
					continue
				} else if i%3 != 0 {
					require.True(t, u.Take(nil, nil))
				}
				require.EqualValues(t, 1, inside.Add(1))
				inside.Add(-1)
				had.Add(1)
				u.Release()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, had.Load(), int32(4*each*2/3))
	require.True(t, u.Try())
	require.False(t, u.Try())
	require.False(t, u.Take(gone, nil))
}
