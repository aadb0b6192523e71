package lockoffload

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Calls on a lock follow each other, and one that waits heeds its own context. An unlock
// that is given up comes all the same.
func TestCallsOnALockHeedTheirContext(t *testing.T) {
	h := &Lock{busy: make(chan struct{}, 1), done: true}
	require.NoError(t, h.enter(context.Background()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := h.Read(ctx, 0, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = h.Write(ctx, 0, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, h.Commit(ctx), context.Canceled)
	require.ErrorIs(t, UnlockAll(ctx, []*Lock{h, h}), context.Canceled)
	h.leave()
	require.NoError(t, h.Unlock(context.Background()))
}
