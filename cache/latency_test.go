package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One number in eight is sampled, the first one among them, whatever the step from one to the next.
func TestSampled(t *testing.T) {
	require.True(t, sampled(0))
	for step := uint64(1); step <= 256; step++ {
		for _, first := range []uint64{0, 1, 7, 1 << 40} {
			n := 0
			for k := range uint64(8000) {
				if sampled(first + k*step) {
					n++
				}
			}
			require.InDelta(t, 1000, n, 100, "step %d from %d", step, first)
		}
	}
}
