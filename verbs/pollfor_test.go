//go:build linux && cgo

package verbs

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// A wait that polls for a while lets others run, finds what comes meanwhile, and stops in time.
func TestPollsAWhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the stand-in's queue has no lock
	d, p, _, _ := driverRig(t)
	for _, pollFor := range []time.Duration{0, 20 * time.Millisecond, time.Hour} {
		c, err := d.CreateCQ(CQConfig{Fields: FieldsStandard, PollOnly: true, Spin: -1, PollFor: pollFor})
		require.NoError(t, err)
		q := connectedRC(t, p, c)
		var wcs [4]WC
		if pollFor < time.Hour {
			begin := time.Now()
			n, err := c.pollAWhile(t.Context(), nil, wcs[:])
			require.NoError(t, err)
			require.Zero(t, n)
			require.GreaterOrEqual(t, time.Since(begin), pollFor)
			require.Less(t, time.Since(begin), 10*time.Second)
		} else {
			go standin.Receive(q.Num(), 7, 64, nil)
			n, err := c.pollAWhile(t.Context(), nil, wcs[:])
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.EqualValues(t, 7, wcs[0].ID())
		}
		require.NoError(t, q.Close())
		standin.Recorded()
	}
}
