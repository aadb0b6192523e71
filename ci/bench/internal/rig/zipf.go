package rig

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Zipf returns a function that returns numbers below n with probabilities 1/k^s, the same
// ones each time for a seed.
func Zipf(n int, s float64, seed uint64) func() int {
	sums := make([]float64, n)
	sum := 0.0
	for k := range sums {
		sum += math.Pow(float64(k+1), -s)
		sums[k] = sum
	}
	r := rand.New(rand.NewPCG(seed, 4))
	return func() int {
		i, _ := slices.BinarySearch(sums, r.Float64()*sum)
		return min(i, n-1)
	}
}
