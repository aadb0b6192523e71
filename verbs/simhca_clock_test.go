//go:build simhca && linux && cgo

package verbs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Completions are stamped by the clock that Device.Clock reads, and by the time of day.
func TestSimulatedClock(t *testing.T) {
	simulated(t, "mlx5")
	for _, fields := range []verbs.WCFields{verbs.FieldTimestamp, verbs.FieldWallClock, verbs.FieldTimestamp | verbs.FieldWallClock} {
		a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Fields: fields}, verbs.ConnectConfig{})
		f, err := a.Dev.Features()
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000, f.ClockKHz)
		batch := a.Batch(t, 1)
		var last uint64
		for range 20 {
			before, err := a.Dev.Clock()
			require.NoError(t, err)
			begin := time.Now()
			batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			_, err = batch.Post()
			require.NoError(t, err)
			var wcs [1]verbs.WCEx
			for n := 0; n == 0; {
				n, err = a.CQ.PollEx(wcs[:])
				require.NoError(t, err)
				require.Less(t, time.Since(begin), rig.Timeout)
			}
			require.NoError(t, wcs[0].Err())
			after, err := a.Dev.Clock()
			require.NoError(t, err)
			require.LessOrEqual(t, last, before)
			last = after
			if fields&verbs.FieldTimestamp != 0 {
				require.LessOrEqual(t, before, wcs[0].Timestamp())
				require.LessOrEqual(t, wcs[0].Timestamp(), after)
			} else {
				require.Zero(t, wcs[0].Timestamp())
			}
			if fields&verbs.FieldWallClock != 0 {
				require.WithinRange(t, wcs[0].Time(), begin.Add(-time.Second), time.Now().Add(time.Second))
			} else {
				require.True(t, wcs[0].Time().IsZero())
			}
		}
		before, err := a.Dev.Clock()
		require.NoError(t, err)
		require.Eventually(t, func() bool { // the device's thread may have to wait for a CPU
			after, err := a.Dev.Clock()
			return err == nil && after-before > 5_000_000
		}, rig.Timeout, time.Millisecond, "it goes on while nothing happens")
	}
}

// With moderation an event comes after enough completions, or when the first of them
// has waited for long enough.
func TestSimulatedModeration(t *testing.T) {
	simulated(t, "mlx5")
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
	f, err := a.Dev.Features()
	require.NoError(t, err)
	require.Equal(t, 65535, f.MaxModerate)
	require.Equal(t, 4095*time.Microsecond, f.MaxModeration)
	batch := a.Batch(t, 4)
	// wait posts n WRITEs while the goroutine that it starts waits, and returns how many
	// completions it was woken for, and how long that took; 0 if it was not, for that long.
	wait := func(n int, long time.Duration) (got int, took time.Duration) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan int)
		go func() {
			var wcs [8]verbs.WC
			got, err := a.CQ.Wait(ctx, wcs[:])
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			done <- got
		}()
		verbs.Parked(t, "IO wait", "verbs.(*CQ).Wait")
		begin := time.Now()
		for k := range n {
			batch.Write(uint64(k), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
		}
		_, err := batch.Post()
		require.NoError(t, err)
		time.AfterFunc(long, cancel)
		return <-done, time.Since(begin)
	}
	rest := func() (n int) {
		var wcs [8]verbs.WC
		n, err := a.CQ.Poll(wcs[:])
		require.NoError(t, err)
		return n
	}
	require.NoError(t, a.CQ.Moderate(4, 0))
	got, _ := wait(4, rig.Timeout)
	require.Equal(t, 4, got)
	got, _ = wait(3, 200*time.Millisecond)
	require.Zero(t, got)
	require.Equal(t, 3, rest())

	require.NoError(t, a.CQ.Moderate(100, 4*time.Millisecond))
	got, took := wait(3, rig.Timeout)
	require.Equal(t, 3, got)
	require.GreaterOrEqual(t, took, 3900*time.Microsecond)

	require.NoError(t, a.CQ.Moderate(0, 0))
	got, _ = wait(1, rig.Timeout)
	require.Equal(t, 1, got)
	require.ErrorIs(t, a.CQ.Moderate(1, 5*time.Millisecond), verbs.ErrAttributes)
}
