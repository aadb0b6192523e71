// Package testseed has the seed of tests that choose at random.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// New returns a random seed, and prints it; GOVERBS_SEED repeats it: the actions,
// that is, not how goroutines and packets meet.
func New(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("GOVERBS_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = v
	}
	t.Logf("GOVERBS_SEED=%d repeats this", seed)
	return seed
}
