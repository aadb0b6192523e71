//go:build linux

package lockoffload_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
)

// The queue of a client is full and nothing comes through, for now. Operations that find
// no room end with their contexts, long before the lease; what they leave to be given
// back is given back when the wire is well again, and the session lives on.
func TestRoomHeedsTheContext(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 4, Size: 8, Clients: 3, Swap: 6}, 10*time.Minute)
	r.way = endless
	c, _ := r.client(lockoffload.Retry{})
	exclusive, _, err := c.Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	_, err = exclusive.Write(ctx, 0, []byte("written"))
	require.NoError(t, err)
	shared, _, err := c.Lock(ctx, 3, lockoffload.LockOptions{Mode: lockoffload.Shared})
	require.NoError(t, err)
	for _, dev := range []string{"h0", "h1"} {
		require.NoError(t, lab.Impair(dev, lab.Impairment{Loss: 1}))
	}
	// First the way of the responses: Soft-RoCE takes a request that was executed, but with
	// a lost response, for acknowledged when a NAK of a later one comes.
	well := func() error {
		for _, dev := range []string{"h1", "h0"} {
			if err := lab.Clear(dev); err != nil {
				return err
			}
		}
		return nil
	}
	healed := false
	defer func() {
		if !healed {
			_ = well()
		}
	}()
	full, stop := context.WithCancel(ctx)
	var filling []chan error
	for range 2 * c.QP().MaxSendWR() {
		over := make(chan error, 1)
		filling = append(filling, over)
		go func() {
			_, _, err := c.Read(full, 0, make([]byte, 8))
			over <- err
		}()
	}
	time.Sleep(200 * time.Millisecond)
	ops := map[string]func(context.Context) error{
		"read":   func(ctx context.Context) error { _, _, err := c.Read(ctx, 0, make([]byte, 8)); return err },
		"update": func(ctx context.Context) error { return upOnce(ctx, c) },
		"chain": func(ctx context.Context) error {
			_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
			return err
		},
		"swap":   func(ctx context.Context) error { _, _, err := c.SwapRead(ctx, 0, make([]byte, 8)); return err },
		"commit": exclusive.Commit,
		"unlock": exclusive.Unlock,
		"shared": shared.Unlock,
	}
	for mode := range lockoffload.Mode(2) {
		ops[[]string{"lock", "lock shared"}[mode]] = func(ctx context.Context) error {
			_, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: mode})
			return err
		}
	}
	// Commit before Unlock, which ends the lock.
	for _, name := range []string{"read", "update", "chain", "swap", "commit", "unlock", "shared", "lock", "lock shared"} {
		isSoon(t, name, func() error {
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			err := ops[name](brief)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.False(t, lockoffload.IsConnectionError(err), "%s: %v", name, err)
			return nil
		})
	}
	stop()
	isSoon(t, "those who filled the queue", func() error {
		for _, over := range filling {
			<-over
		}
		return nil
	})
	select {
	case <-c.Lost():
		t.Fatal("the session ended")
	default:
	}
	healed = true
	require.NoError(t, well())
	require.NoError(t, c.Flush(ctx))
	other, _ := r.client(lockoffload.Retry{})
	for slot := range 4 {
		h, _, err := other.Lock(ctx, slot, lockoffload.LockOptions{Tries: 1})
		require.NoError(t, err, "slot %d was given back", slot)
		require.NoError(t, h.Unlock(ctx))
	}
	data, _, err := c.Read(ctx, 1, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, "written", string(data), "the unlock command was posted with what was written")
	data, _, err = c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Empty(t, data, "nothing that was given up has changed anything")
}
