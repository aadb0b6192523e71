package lockoffload

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// A client that swaps in one slot after the other of a large region does not need more memory
// with each: it remembers the pointers of some.
func TestClientsMemoryIsBounded(t *testing.T) {
	c := newClient(Config{}, memory.Layout{}, nil)
	const slots = maxSlots + 1000
	ctx := context.Background()
	s := new(session)
	for slot := range slots {
		w, err := c.swaps.enter(ctx, s, slot)
		require.NoError(t, err)
		w.leave(uint64(slot), true)
	}
	require.Len(t, c.swaps.slots, maxSlots)
	w, err := c.swaps.enter(ctx, s, 7)
	require.NoError(t, err)
	require.True(t, w.known)
	require.EqualValues(t, 7, w.pointer)
	w.leave(8, true)
	w, err = c.swaps.enter(ctx, s, slots-1)
	require.NoError(t, err)
	require.False(t, w.known)

	// Two that want a slot which is not remembered follow each other all the same.
	brief, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.swaps.enter(brief, s, slots-1)
	require.ErrorIs(t, err, context.Canceled)
	next := make(chan *swapSlot)
	go func() {
		w, _ := c.swaps.enter(ctx, s, slots-1)
		next <- w
	}()
	require.Eventually(t, func() bool {
		c.swaps.mu.Lock()
		defer c.swaps.mu.Unlock()
		return w.users == 2
	}, 20*time.Second, time.Millisecond)
	w.leave(9, true)
	w = <-next
	require.EqualValues(t, 9, w.pointer, "it was remembered for who waited")
	w.leave(0, false)
	require.Len(t, c.swaps.slots, maxSlots)
}
