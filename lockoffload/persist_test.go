package lockoffload

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// dialed is a client whose session lives, and whose target cannot be found again.
func dialed() *Client {
	c := newClient(Config{}, memory.Layout{}, &session{lost: make(chan struct{})})
	c.link = &link{turn: make(chan struct{}, 1), join: func(context.Context) (joined, error) { return joined{}, ErrRefused }}
	return c
}

// What fails with a session that lives, a lock of a session before for instance, is not
// repeated for ever.
func TestPersistEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialed()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		over, calls := make(chan error, 1), 0
		go func() {
			over <- c.Retry(ctx, func() error { calls++; return fmt.Errorf("of long ago: %w", ErrLost) })
		}()
		select {
		case err := <-over:
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, ErrLost)
			require.Greater(t, calls, 1)
			require.Less(t, calls, 50, "with pauses")
		case <-time.After(time.Minute):
			t.Fatal("no end")
		}
	})
}

// A target that cannot be found is looked for until the context ends.
func TestRedialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialed()
		c.s.lose()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		err := c.Redial(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrRefused)
	})
}
