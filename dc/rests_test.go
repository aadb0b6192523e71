package dc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRests: a goroutine that works on and on gives up its turn each few milliseconds; one
// that works now and then never does.
func TestRests(t *testing.T) {
	var r rests
	count := func(from time.Duration, n int, pause time.Duration) (due int) {
		for k := range n {
			if r.due(from + time.Duration(k)*pause) {
				due++
			}
		}
		return due
	}
	require.Equal(t, 9, count(time.Second, 40, time.Millisecond))
	require.Zero(t, count(2*time.Second, 40, restEvery))
	require.Zero(t, count(3*time.Second, 4, restEvery/4))
}
