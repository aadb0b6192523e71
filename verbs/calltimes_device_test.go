//go:build linux

package verbs_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// A list is posted before its limit or not at all, whether or not another goroutine polls.
func TestCallLimit(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r, ctx, far := newRequester(t, a, verbs.RequesterConfig{}), t.Context(), b.MR.Region()
	d, err := a.CQ.Dispatch(&readers{}, 1)
	require.NoError(t, err)
	rig.Fill(b.MR.Bytes()[:64], 3)
	for _, polled := range []bool{false, true} {
		var w verbs.Waiter
		var poller sync.WaitGroup
		if polled {
			poller.Go(func() { assert.NoError(t, d.Wait(ctx, &w)) })
			time.Sleep(10 * time.Millisecond)
		}
		var c verbs.Call
		limit := time.Duration(boottime.Now().UnixNano())
		driver.Limit(&c, limit)
		err := r.Go(ctx, &c, verbs.ReadWR(far.At(0), a.MR.SGE(0, 64)))
		require.ErrorIs(t, err, syscall.ETIME)
		require.True(t, c.Done())
		require.ErrorIs(t, c.Wait(ctx), verbs.ErrState)
		posted, _ := driver.Times(&c)
		require.GreaterOrEqual(t, posted, limit)
		require.Equal(t, make([]byte, 64), a.MR.Bytes()[:64])

		driver.Limit(&c, limit+time.Hour)
		require.NoError(t, r.Go(ctx, &c, verbs.ReadWR(far.At(0), a.MR.SGE(0, 64))))
		require.NoError(t, c.Wait(ctx))
		require.Equal(t, b.MR.Bytes()[:64], a.MR.Bytes()[:64])
		clear(a.MR.Bytes())
		d.Wake(&w)
		poller.Wait()
	}
	require.NoError(t, d.Close())
}
