// Package measure turns pairs of measurements into figures that hold: ratios
// with exact intervals, the baseline against itself beside them, and a verdict
// on a target that was fixed before the run.
package measure

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is the level that an interval has at least, if the sample is large
// enough for one: six values.
const confidence = 0.95

// Levels between which an interval may judge a target. Order statistics have
// steps: seven values offer 87.5 or 98.4 %, and an interval that is much surer
// than it claims to be misses as much as one that is less.
const minLevel, maxLevel = 0.94, 0.97

// Median of a non-empty sample.
func Median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Interval holds a median with probability Level, of a continuous distribution;
// of one with ties with at least that.
type Interval struct{ Low, High, Level float64 }

// MedianInterval returns the interval between two order statistics of a non-empty
// sample. It assumes nothing about the distribution, and its level is exact: a
// value lies below the median as often as a coin shows heads. A sample of fewer
// than six values does not reach 95 %; its interval is the whole range.
func MedianInterval(x []float64) Interval {
	s := slices.Sorted(slices.Values(x))
	sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(s, &benchmath.DefaultThresholds), confidence)
	if math.IsInf(sum.Lo, 0) || math.IsInf(sum.Hi, 0) {
		n := len(s)
		return Interval{s[0], s[n-1], 1 - math.Pow(2, float64(1-n))}
	}
	return Interval{sum.Lo, sum.Hi, sum.Confidence}
}

// Judges reports whether so many values may judge a target: their interval has
// 94 to 97 %, and as many values below it as above it. 6, 9, 12, 15, 17, 18 and
// 20 do.
func Judges(n int) bool {
	if n < 1 {
		return false
	}
	ranks := make([]float64, n)
	for i := range ranks {
		ranks[i] = float64(i + 1)
	}
	in := MedianInterval(ranks)
	return in.Level >= minLevel && in.Level <= maxLevel && in.Low+in.High == float64(n+1)
}

// highest stands for all larger ratios, and for those to a baseline of 0: JSON has no infinity.
const highest = 1e6

// Ratios divides pair by pair.
func Ratios(x, base []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		if out[i] = 1; x[i] != base[i] {
			out[i] = min(x[i]/base[i], highest)
		}
	}
	return out
}

// differences subtracts pair by pair. Their interval leaves out 0 exactly if that of the ratios
// leaves out 1.
func differences(x, base []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = x[i] - base[i]
	}
	return out
}

// Pairs says how many pairs bring the half-width of the interval of a median
// ratio down to halfWidth, given ratios of the baseline against itself from a
// pilot: the next number that may judge a target, or more than most if that is
// not enough. The standard error of a median is about 1.25 sigma / sqrt(n); the
// spread is taken from the quartiles, which outliers do not move.
func Pairs(pilot []float64, halfWidth float64, most int) int {
	s := slices.Sorted(slices.Values(pilot))
	sigma := (s[len(s)*3/4] - s[len(s)/4]) / 1.35
	n := int(min(math.Ceil(math.Pow(1.96*1.25*sigma/halfWidth, 2)), float64(most+1)))
	for n <= most && !Judges(n) {
		n++
	}
	return n
}
