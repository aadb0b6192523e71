package chanmutex_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/chanmutex"
)

// One at a time has the turn, some give up waiting, and none of the others is
// forgotten: the test would not end.
func TestMutexIsNeverLost(t *testing.T) {
	u := chanmutex.New()
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

// Two take the turn once each, at the same time, over and over. If one misses
// a release, nothing else wakes it: the test would not end.
func TestMutexOfTwo(t *testing.T) {
	rounds := int32(1_000_000)
	if testing.Short() {
		rounds = 200_000
	}
	u := chanmutex.New()
	var had atomic.Int32
	var wg sync.WaitGroup
	for i := range int32(2) {
		wg.Go(func() {
			for round := range rounds {
				for had.Load() < 2*round { // the other one of the last round
					runtime.Gosched()
				}
				for range (round * (3 + 4*i)) % 211 { // each time another one comes first, by a little
				}
				u.Take(nil, nil)
				if round%16 == 0 {
					runtime.Gosched() // the other one parks
				}
				u.Release()
				had.Add(1)
			}
		})
	}
	wg.Wait()
}
