// Package measure turns pairs of measurements into figures that hold: ratios
// with intervals, the baseline against itself beside them, and a verdict on a
// target that was fixed before the run.
package measure

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Resamples and seed of the bootstrap: the same data give the same interval.
const (
	resamples = 10_000
	seed      = 1
)

// Median of a non-empty sample.
func Median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Interval is a 95 % interval.
type Interval struct{ Low, High float64 }

// MedianInterval is the percentile bootstrap interval of the median. With
// fewer than six values it is the whole range: resampling so few does not reach
// 95 %, and the range of n values holds the median with probability
// 1 - 2^(1-n), which is 94 % at five.
func MedianInterval(x []float64) Interval {
	if len(x) < 6 {
		return Interval{slices.Min(x), slices.Max(x)}
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(x))))
	medians := make([]float64, resamples)
	sample := make([]float64, len(x))
	for i := range medians {
		for j := range sample {
			sample[j] = x[r.IntN(len(x))]
		}
		medians[i] = Median(sample)
	}
	slices.Sort(medians)
	return Interval{medians[resamples*25/1000], medians[resamples*975/1000-1]}
}

// Ratios divides pair by pair.
func Ratios(x, base []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] / base[i]
	}
	return out
}

// Pairs says how many pairs bring the half-width of the interval of a median
// ratio down to halfWidth, given ratios of the baseline against itself from a
// pilot. The standard error of a median is about 1.25 sigma / sqrt(n); the
// spread is taken from the quartiles, which outliers do not move.
func Pairs(pilot []float64, halfWidth float64, least, most int) int {
	s := slices.Sorted(slices.Values(pilot))
	sigma := (s[len(s)*3/4] - s[len(s)/4]) / 1.35
	n := math.Ceil(math.Pow(1.96*1.25*sigma/halfWidth, 2))
	return min(max(int(n), least), most)
}
