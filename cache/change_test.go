package cache

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No time is too long: what nobody lives to see is never over, and not over already.
func TestExpiryOfAnyTime(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3_600_000, -1: -1, math.MinInt64: -1,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1, math.MaxInt64 - 999_999: math.MaxInt64 / 1_000_000,
	} {
		require.Equal(t, want, expiry(ttl), ttl)
	}
	require.Equal(t, time.Duration(math.MaxInt64), left(math.MaxUint64/2, 0))
	require.Equal(t, time.Duration(math.MaxInt64), left(math.MaxInt64/1_000_000+1, 0))
	require.Equal(t, time.Duration(math.MaxInt64/1_000_000*1_000_000), left(math.MaxInt64/1_000_000, 0))
	require.Equal(t, 5*time.Millisecond, left(15, 10))
	require.Zero(t, left(10, 15), "it expires just now")
}
