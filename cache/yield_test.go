package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A goroutine that READs without a pause yields before the runtime preempts it, after 10 ms, be the READs short,
// long, or many together; and not much sooner, since that may wake a thread.
func TestREADsMakeSchedulingPoints(t *testing.T) {
	for name, read := range map[string]struct {
		n, bytes int
		takes    time.Duration
	}{
		"short":    {1, 64, 230 * time.Microsecond},
		"1 KiB":    {1, 1024, 250 * time.Microsecond},
		"16 KiB":   {1, 16 << 10, 1600 * time.Microsecond},
		"32 KiB":   {1, 32 << 10, 3100 * time.Microsecond},
		"together": {16, 0, 3100 * time.Microsecond},
		"fast":     {1, 64, 2 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var y yield
			begun := time.Now()
			last, points := begun, 0
			for time.Since(begun) < time.Second {
				time.Sleep(read.takes)
				if y.due(read.n, read.bytes, &begun) {
					require.Less(t, time.Since(last), 10*time.Millisecond, name)
					require.Greater(t, time.Since(last), 8*time.Millisecond, name)
					last = time.Now()
					points++
				}
			}
			require.GreaterOrEqual(t, points, 100, name)
		})
	}
}
