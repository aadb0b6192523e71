package histogram

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuckets(t *testing.T) {
	var c Counts
	var a Atomic
	for _, v := range []uint64{0, 1, 2, 3, 4, 1023, 1024, 1 << 38, math.MaxUint64 - 2057 - 1<<38} {
		c.Add(v)
		a.Add(v)
	}
	want := map[int]uint64{0: 1, 1: 1, 2: 2, 3: 1, 10: 1, 11: 1, 39: 2}
	for i, n := range c.N {
		require.Equal(t, want[i], n, i)
	}
	require.EqualValues(t, 9, c.Total())
	require.EqualValues(t, uint64(math.MaxUint64), c.Sum)
	require.Equal(t, c, a.Load())
}

func TestConcurrentAdd(t *testing.T) {
	var a Atomic
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for v := range uint64(1000) {
				a.Add(v)
			}
		})
	}
	all.Wait()
	c := a.Load()
	require.EqualValues(t, 4000, c.Total())
	require.EqualValues(t, 4*999*500, c.Sum)
}

func TestAddTimes(t *testing.T) {
	var a, b Atomic
	a.AddTimes(1000, 3)
	for range 3 {
		b.Add(1000)
	}
	require.Equal(t, b.Load(), a.Load())
}

func TestAddAllocatesNothing(t *testing.T) {
	var a Atomic
	require.Zero(t, testing.AllocsPerRun(100, func() { a.Add(5) }))
}
