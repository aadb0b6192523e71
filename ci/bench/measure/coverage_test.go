package measure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Continuous distributions with known medians: what passes of benchmarks look
// like when they are well behaved, and when they are not.
var distributions = []struct {
	name   string
	median float64
	draw   func(*rand.Rand) float64
}{
	{"normal", 0, (*rand.Rand).NormFloat64},
	{"uniform", 0.5, (*rand.Rand).Float64},
	{"exponential", math.Ln2, (*rand.Rand).ExpFloat64},
	{"log-normal", 1, func(r *rand.Rand) float64 { return math.Exp(r.NormFloat64()) }},
	{"Cauchy", 0, func(r *rand.Rand) float64 { return math.Tan(math.Pi * (r.Float64() - 0.5)) }},
	// Two modes, as of a queue pair with wake-ups that now and then come late.
	{"two modes", 0.625, func(r *rand.Rand) float64 {
		if r.Float64() < 0.8 {
			return r.Float64()
		}
		return 10 + r.Float64()
	}},
}

// The interval holds the true median in 94 to 97 of 100 runs, whatever the
// distribution, for each number of pairs with which a target may be judged; and
// the level that it says is the one it has.
func TestIntervalCoversTheMedian(t *testing.T) {
	const trials = 12_000 // a standard error of 0.2 %
	for _, n := range []int{6, 9, 12, 15, 17, 18, 20} {
		require.True(t, Judges(n))
		for _, d := range distributions {
			t.Run(fmt.Sprint(d.name, " ", n), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(7, uint64(n)))
				hits := 0
				x := make([]float64, n)
				for range trials {
					for i := range x {
						x[i] = d.draw(r)
					}
					if in := MedianInterval(x); in.Low <= d.median && d.median <= in.High {
						hits++
					}
				}
				share := float64(hits) / trials
				t.Logf("n = %d: %.2f %% of %d", n, 100*share, trials)
				require.GreaterOrEqual(t, share, minLevel)
				require.LessOrEqual(t, share, maxLevel+0.006) // three standard errors of six values' 96.9 %
				require.InDelta(t, MedianInterval(x).Level, share, 0.006)
			})
		}
	}
}

// Other numbers have no interval near 95 % with as much on either side.
func TestNumbersThatJudge(t *testing.T) {
	var out []int
	for n := range 21 {
		if Judges(n) {
			out = append(out, n)
		}
	}
	require.Equal(t, []int{6, 9, 12, 15, 17, 18, 20}, out)
}

// Too few values make no 95 %, and the interval says so.
func TestLevelOfFewValues(t *testing.T) {
	require.Equal(t, Interval{1, 3, 0.75}, MedianInterval([]float64{3, 1, 2}))
	require.Equal(t, Interval{1, 5, 0.9375}, MedianInterval([]float64{3, 1, 2, 5, 4}))
	require.Equal(t, Interval{4, 4, 0}, MedianInterval([]float64{4}))
	require.InDelta(t, 0.984, MedianInterval([]float64{3, 1, 2, 5, 4, 7, 6}).Level, 0.001)
}
