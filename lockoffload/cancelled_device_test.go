//go:build linux

package lockoffload_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/canceltest"
	"github.com/goverbs/goverbs/lockoffload"
)

// Calls under a context that has ended already do nothing. To give a lock back is no such
// call: a program that gives up has it, and it goes on in the background.
func TestCancelledBefore(t *testing.T) {
	c, _ := newRig(t, lockoffload.Layout{Slots: 2, Size: 64, Swap: 4}, long).client(lockoffload.Retry{})
	ctx := within(t, stuck)
	h, _, err := c.Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	never := func([]byte) ([]byte, error) {
		t.Error("a change is asked for")
		return nil, nil
	}
	args := []any{[]int{0}, [][]byte{make([]byte, 64)}, make([]byte, 64), never, func() error { return nil }, &lockoffload.Chain{}}
	canceltest.Methods(t, c, args, "DieAfter", "BlindUpdate") // of other tests
	canceltest.Methods(t, h, args, "Unlock")
	require.NoError(t, h.Unlock(ctx))
	_, res, err := c.Read(ctx, 0, make([]byte, 64))
	require.NoError(t, err)
	require.Zero(t, res.Version)

	caller := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 64}, func(*lockoffload.AgentConfig) {}).caller(nil)
	canceltest.Methods(t, caller, []any{&lockoffload.Chain{}}, "LeaveTurn")
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = lockoffload.Dial(over, nil, "10.77.0.2:1", lockoffload.DialConfig{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = lockoffload.DialAgent(over, nil, "10.77.0.2:1", lockoffload.DialConfig{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = lockoffload.NewCaller(over, lockoffload.CallerConfig{})
	require.ErrorIs(t, err, context.Canceled)
}
