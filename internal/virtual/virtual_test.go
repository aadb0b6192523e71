package virtual

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOrder: by time, then as they were added, also while others happen.
func TestOrder(t *testing.T) {
	var w World
	rng := rand.New(rand.NewPCG(1, 1))
	type happened struct {
		at  time.Duration
		seq uint64
	}
	var got []happened
	var add func(left int)
	add = func(left int) {
		d := time.Duration(rng.IntN(5))
		at, seq := w.Now+d, w.Added+1
		w.After(d, func() {
			require.Equal(t, at, w.Now)
			got = append(got, happened{at, seq})
			for range min(left, 3) {
				add(left - 1)
			}
		})
	}
	for range 40 {
		add(3)
	}
	w.Run(2)
	require.EqualValues(t, 2, w.Now)
	n := len(got)
	require.Less(t, n, int(w.Added))
	for _, e := range w.heap {
		require.Greater(t, e.at, w.Now)
	}
	w.Run(time.Second)
	require.Len(t, got, int(w.Added))
	require.Equal(t, time.Second, w.Now)
	require.True(t, slices.IsSortedFunc(got[:n], func(a, b happened) int { return int(a.at - b.at) }))
	require.True(t, slices.IsSortedFunc(got, func(a, b happened) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.seq) - int(b.seq)
	}))
}

// TestWrong ends the run, and the first mistake is kept.
func TestWrong(t *testing.T) {
	var w World
	w.After(1, func() { w.Wrong("first %d", 1); w.Wrong("second") })
	w.After(2, func() { t.Error("it went on") })
	w.Run(time.Second)
	require.EqualError(t, w.Err, "first 1")
	require.EqualValues(t, 1, w.Now)
}

// TestTrace: runs differ in it if other events happened, in another order, or at other times.
func TestTrace(t *testing.T) {
	trace := func(times ...time.Duration) uint64 {
		var q Queue[int]
		for i, at := range times {
			q.Add(at, i)
		}
		for range times {
			q.Next(time.Second)
		}
		return q.Trace
	}
	require.Equal(t, trace(1, 2, 3), trace(1, 2, 3))
	seen := make(map[uint64]bool)
	for _, times := range [][]time.Duration{{}, {1}, {2}, {1, 1}, {1, 2}, {2, 1}, {1, 2, 3}, {3, 1, 2}, {1, 1, 1}} {
		seen[trace(times...)] = true
	}
	require.Len(t, seen, 9)
}
