package dci

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/virtual"
)

var errFlushed = errors.New("flushed")

// world is virtual time.
type world struct {
	virtual.World
	rng  *rand.Rand
	loss float64
}

// seeds is how many random programs to run: few on an emulated machine, where
// they say nothing that they do not say elsewhere.
func seeds(all, short uint64) uint64 {
	switch {
	case lab.In():
		return 40
	case testing.Short():
		return short
	}
	return all
}
