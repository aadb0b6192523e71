package shaper

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// Processes that come, want, use, and die never have more than the threshold
// together, and those that want have equal parts in the end.
func TestSharesAreConserved(t *testing.T) {
	const total = 1000
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	for range 300 {
		all, used := make([]Holder, 1+r.IntN(5)), make([]int64, 5)
		step := func(i int) {
			all[i].Alive = true
			all[i].Lease = Share(total, all, i, all[i].Wants, used[i])
			sum := int64(0)
			for _, h := range all {
				if h.Alive {
					sum += h.Lease
				}
			}
			require.LessOrEqual(t, sum, int64(total), "%+v", all)
			require.GreaterOrEqual(t, all[i].Lease, used[i])
		}
		for range 200 {
			i := r.IntN(len(all))
			switch r.IntN(6) {
			case 0:
				all[i].Alive, used[i] = false, 0 // it dies, and its record stays
			case 1:
				all[i].Wants = !all[i].Wants
			case 2:
				if all[i].Alive && all[i].Lease > 0 {
					used[i] = r.Int64N(all[i].Lease + 1)
				}
			default:
				step(i)
			}
		}
		clear(used)
		for i := range all {
			all[i].Wants = true
		}
		for range 4 {
			for i := range all {
				step(i)
			}
		}
		for _, h := range all {
			require.EqualValues(t, total/len(all), h.Lease)
		}
		if len(all) < 3 {
			continue
		}
		all[0].Alive, all[1].Wants = false, false // one dies, one has nothing to do
		for range 4 {
			for i := 1; i < len(all); i++ {
				step(i)
			}
		}
		require.Zero(t, all[1].Lease)
		for _, h := range all[2:] {
			require.EqualValues(t, total/(len(all)-2), h.Lease)
		}
	}
}

// Without any part of what others share there are one response outstanding and small ones up
// to their reserve.
func TestWithoutALeaseOneGoes(t *testing.T) {
	b := newBench(t, Config{Slice: 4 * kib, Threshold: 1 << 20, Reserve: kib, Small: 128}, make([]FlowConfig, 2)...)
	b.s.Lease(0)
	var large, small int
	for range 3 {
		b.get(0, 4*kib)
	}
	for range 20 {
		b.get(1, 99) // and a byte of header
	}
	for g, ok := b.next(); ok; g, ok = b.next() {
		if g.Length == 99 {
			small++
		} else {
			large++
		}
	}
	require.Equal(t, []int{1, 10}, []int{large, small})
}
