//go:build linux

package verbs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// The times of a call lie around its list, by a clock that counts suspension. A bound of the first
// one may be earlier.
func TestCallTimes(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r, ctx, far := newRequester(t, a, verbs.RequesterConfig{}), t.Context(), b.MR.Region()
	now := func() time.Duration { return time.Duration(boottime.Now().UnixNano()) }
	began := now()
	var c verbs.Call
	for n, bound := range []bool{false, true, true, false} {
		driver.Clock(&c, true, bound)
		before := now()
		require.NoError(t, r.Go(ctx, &c, verbs.ReadWR(far.At(0), a.MR.SGE(0, 64))))
		require.NoError(t, c.Wait(ctx))
		after := now()
		posted, over := driver.Times(&c)
		require.LessOrEqual(t, posted, after, n)
		require.Greater(t, posted, began-time.Second, n)
		if !bound {
			require.GreaterOrEqual(t, posted, before, n)
		}
		if over != 0 {
			require.GreaterOrEqual(t, over, before, n)
			require.LessOrEqual(t, over, after, n)
		}
	}
}
