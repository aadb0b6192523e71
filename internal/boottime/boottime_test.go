//go:build linux

package boottime

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that cannot be read is not used.
func TestUse(t *testing.T) {
	t.Cleanup(func() { Use(nil) })
	Use(func() int64 { return 12_000_000_034 })
	require.Equal(t, time.Unix(12, 34), Now())
	Use(func() int64 { return 0 })
	require.NotEqual(t, time.Unix(0, 0), Now())
}

// The kernel's uptime counts the time of suspension.
func TestNow(t *testing.T) {
	uptime := func() time.Time {
		b, err := os.ReadFile("/proc/uptime")
		require.NoError(t, err)
		var s, cs int64
		_, err = fmt.Sscanf(string(b), "%d.%d", &s, &cs)
		require.NoError(t, err)
		return time.Unix(s, cs*int64(time.Second/100))
	}
	before, now := uptime(), Now()
	require.False(t, now.Before(before))
	require.True(t, now.Before(uptime().Add(time.Second/50))) // it is told in hundredths
}
