//go:build linux

package lockoffload_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

const long = time.Minute // a lease that does not run out

func TestLockExcludes(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 2, Size: 64}, long).clients(2, lockoffload.Retry{Tries: 3})
	h, _, err := cs[0].Lock(ctx, 1, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)
	_, _, err = cs[1].Lock(ctx, 1, lockoffload.LockOptions{Tries: 1})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	res, err := cs[1].Do(ctx, &lockoffload.Chain{Slot: 1, Tries: 3, Accesses: []lockoffload.Access{readOf(0, 64)}})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.Equal(t, 3, res.Tries)
	readIn(t, ctx, lockoffload.ProtocolReadChain, func(ctx context.Context) (lockoffload.Result, error) {
		return cs[1].Do(ctx, &lockoffload.Chain{Tries: 1, Accesses: []lockoffload.Access{readOf(0, 64)}}) // another slot is free
	})
	excused := readIn(t, ctx, lockoffload.ProtocolRead, func(ctx context.Context) (lockoffload.Result, error) {
		_, res, err := cs[1].Read(ctx, 1, make([]byte, 64)) // which waits for no holder
		return res, err
	})
	require.NoError(t, h.Unlock(ctx), "the failed chains left the holder's lock alone")
	require.NoError(t, h.Unlock(ctx))
	h, _, err = cs[1].Lock(ctx, 1, lockoffload.LockOptions{})
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
	require.Equal(t, uint64(4+3*excused), cs[1].Stats().Failed)
	require.Equal(t, uint64(1), cs[1].Stats().ReadChain)
}

func TestAccessUnderTheLock(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 64, Records: 2}, long).clients(2, lockoffload.Retry{})
	var tokens []uint64
	for i := range 6 {
		h, _, err := cs[i%2].Lock(ctx, 0, lockoffload.LockOptions{Token: true})
		require.NoError(t, err)
		res, err := h.Write(ctx, 1, []byte{byte(i)})
		require.NoError(t, err)
		require.Equal(t, uint64(i+1), res.Version)
		data, _, err := h.Read(ctx, 1, make([]byte, 64))
		require.NoError(t, err)
		require.Equal(t, []byte{byte(i)}, data)
		tokens = append(tokens, h.Token())
		require.NoError(t, h.Unlock(ctx))
		_, err = h.Write(ctx, 1, nil)
		require.ErrorIs(t, err, lockoffload.ErrClosed)
	}
	require.IsIncreasing(t, tokens)

	// What a holder writes others see by Commit and Unlock, not before.
	h, _, err := cs[0].Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	see := func(want byte) {
		readIn(t, ctx, lockoffload.ProtocolRead, func(ctx context.Context) (lockoffload.Result, error) {
			ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(1, 64)}}
			res, err := cs[1].Do(ctx, &ch)
			data := ch.Accesses[0].Data
			require.True(t, err != nil || bytes.Equal(data, []byte{want}), "%v, not %v", data, want)
			return res, err
		})
	}
	for i, commit := range []bool{false, true, false, true, true, false} {
		_, err := h.Write(ctx, 1, []byte{byte(10 + i)})
		require.NoError(t, err)
		if commit {
			require.NoError(t, h.Commit(ctx))
			require.NoError(t, h.Commit(ctx), "nothing to be done")
		}
		see([]byte{5, 11, 11, 13, 14, 14}[i])
		data, _, err := h.Read(ctx, 1, make([]byte, 64))
		require.NoError(t, err)
		require.Equal(t, []byte{byte(10 + i)}, data)
	}
	require.NoError(t, h.Unlock(ctx))
	see(15)
	require.ErrorIs(t, h.Commit(ctx), lockoffload.ErrClosed)
	change := lockoffload.Chain{Async: true, Accesses: []lockoffload.Access{readOf(1, 0), readOf(0, 0), writeOf(1, ""), writeOf(0, "")}}
	change.Change = func(a []lockoffload.Access) error {
		require.Equal(t, []byte{15}, a[0].Data)
		require.Empty(t, a[1].Data)
		a[2].Data, a[3].Data = nil, []byte("zero")
		return nil
	}
	posted, err := cs[0].Do(ctx, &change)
	require.NoError(t, err)
	require.Nil(t, change.Accesses[0].Data, "it was valid in Change")
	require.EqualValues(t, change.Accesses[0].Version, change.Accesses[2].Version, "nil leaves a record as it is")
	require.EqualValues(t, 1, change.Accesses[3].Version)
	require.NoError(t, posted.Commit.Wait(ctx), "a READ beside the WRITE may be tried again, under a lock in the end")
	readIn(t, ctx, lockoffload.ProtocolRead, func(ctx context.Context) (lockoffload.Result, error) {
		ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 64), readOf(1, 64)}}
		res, err := cs[1].Do(ctx, &ch)
		require.NoError(t, err)
		require.Equal(t, "zero", string(ch.Accesses[0].Data))
		require.Equal(t, []byte{15}, ch.Accesses[1].Data)
		return res, err
	})
}

// What a holder has committed is not written over: the next WRITE under the same lock goes
// to the other copy.
func TestCommitsGoToEitherCopy(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, _ := r.client(lockoffload.Retry{})
	h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	for n, want := range [][2]uint64{{0, 1}, {2, 1}, {2, 3}} {
		_, err := h.Write(ctx, 0, []byte{byte(n)})
		require.NoError(t, err)
		if n < 2 {
			require.NoError(t, h.Commit(ctx))
		} else {
			require.NoError(t, h.Unlock(ctx))
		}
		require.Equal(t, want, r.reg.Versions(0))
	}
	data, res, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, []byte{2}, data)
	require.EqualValues(t, 3, res.Version)
}

func TestSharedLock(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long).clients(3, lockoffload.Retry{})
	shared := lockoffload.LockOptions{Mode: lockoffload.Shared}
	a, _, err := cs[0].Lock(ctx, 0, shared)
	require.NoError(t, err)
	b, _, err := cs[0].Lock(ctx, 0, shared)
	require.NoError(t, err, "a second holder of the same client")
	d, _, err := cs[1].Lock(ctx, 0, shared)
	require.NoError(t, err)
	_, err = d.Write(ctx, 0, nil)
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	readIn(t, ctx, lockoffload.ProtocolRead, func(ctx context.Context) (lockoffload.Result, error) { // which passes readers
		_, res, err := cs[1].Read(ctx, 0, make([]byte, 8))
		return res, err
	})

	_, _, err = cs[2].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.NoError(t, a.Unlock(ctx))
	require.NoError(t, d.Unlock(ctx))
	_, _, err = cs[2].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired, "one holder is left")
	require.NoError(t, b.Unlock(ctx))
	w, _, err := cs[2].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)
	_, _, err = cs[0].Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared, Tries: 2})
	require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
	require.NoError(t, w.Unlock(ctx))
	a, _, err = cs[0].Lock(ctx, 0, shared)
	require.NoError(t, err)
	require.NoError(t, a.Unlock(ctx))
}

func number(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func incrementHeld(ctx context.Context, c *lockoffload.Client, mode lockoffload.Mode) error {
	h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: mode})
	if err != nil {
		return err
	}
	data, _, err := h.Read(ctx, 0, make([]byte, 8))
	if err != nil {
		return err
	}
	if _, err := h.Write(ctx, 0, binary.LittleEndian.AppendUint64(nil, number(data)+1)); err != nil {
		return err
	}
	return h.Unlock(ctx)
}

func TestLocksInOrder(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 3, Size: 8}, long).clients(2, lockoffload.Retry{})
	var wg sync.WaitGroup
	for i, c := range cs {
		order := [][]int{{0, 2, 1}, {2, 1, 0, 2}}[i]
		wg.Go(func() {
			for range 20 {
				held, err := c.LockAll(ctx, order...)
				if err != nil || len(held) != 3 {
					t.Error(len(held), err)
					return
				}
				if err := lockoffload.UnlockAll(ctx, held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A lock command must not leave the slot locked if no call waits for its reply.
func TestLockGivenUpIsReleased(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long).clients(2, lockoffload.Retry{})
	for i := range 30 {
		mode := lockoffload.Mode(i % 3)
		short, stop := context.WithTimeout(ctx, time.Duration(i)*20*time.Microsecond)
		h, _, err := cs[0].Lock(short, 0, lockoffload.LockOptions{Mode: mode})
		stop()
		if err == nil {
			require.NoError(t, h.Unlock(ctx))
		}
		require.NoError(t, cs[0].Flush(ctx))
		h, _, err = cs[1].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
		require.NoError(t, err, "try %d", i)
		require.NoError(t, h.Unlock(ctx))
	}
}

func TestPanicReleases(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long).clients(2, lockoffload.Retry{})
	require.PanicsWithValue(t, "oh", func() {
		_, _ = updateAsync(ctx, cs[0], 0, func([]byte) ([]byte, error) { panic("oh") })
	})
	require.NoError(t, cs[0].Flush(ctx))
	h, _, err := cs[1].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
	require.NoError(t, err)
	require.NoError(t, h.Unlock(ctx))
}
