package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Pauses double up to the longest, and begin anew after a success.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(time.Millisecond, 5*time.Millisecond)
		wait := func() time.Duration {
			began := time.Now()
			require.NoError(t, b.Wait(context.Background()))
			return time.Since(began) / time.Millisecond
		}
		for _, want := range []time.Duration{1, 2, 4, 5, 5} {
			require.Equal(t, want, wait())
		}
		b.Reset()
		require.EqualValues(t, 1, wait())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		began := time.Now()
		require.ErrorIs(t, b.Wait(ctx), context.Canceled)
		over := make(chan struct{})
		close(over)
		require.False(t, b.WaitUnless(over))
		require.Zero(t, time.Since(began))
		b.Reset()
		require.True(t, b.WaitUnless(nil))
		b.Sleep()
		require.Equal(t, 3*time.Millisecond, time.Since(began))
	})
}
