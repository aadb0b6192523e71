package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Half as many shards move together after each failure, one at least, and twice as many after each success, up to what
// their memory allows. After a success the member rests.
func TestTogether(t *testing.T) {
	p := together{12, 12}
	for _, want := range []int{6, 3, 1, 1} {
		require.Zero(t, p.ended(time.Second, errKept))
		require.Equal(t, want, p.n)
	}
	for _, want := range []int{2, 4, 8, 12, 12} {
		require.Equal(t, 3*time.Second, p.ended(time.Second, nil))
		require.Equal(t, want, p.n)
	}
}
