//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
)

// Update returns when the change has happened and the lock is free.
func TestUpdateReturnsWhenItHappened(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Records: 2}, long).clients(2, lockoffload.Retry{Tries: 1})
	for i := range uint64(20) {
		res, err := cs[0].Update(ctx, 0, func(old []byte) ([]byte, error) { return up(old), nil })
		require.NoError(t, err)
		select {
		case <-res.Commit.Done():
		default:
			t.Fatal("not over yet")
		}
		h, _, err := cs[1].Lock(ctx, 0, lockoffload.LockOptions{Tries: 1})
		require.NoError(t, err)
		data, _, err := h.Read(ctx, 0, make([]byte, 8))
		require.NoError(t, err)
		require.Equal(t, i+1, number(data))
		require.NoError(t, h.Unlock(ctx))
	}
	_, err := cs[0].Update(ctx, 0, func([]byte) ([]byte, error) {
		_ = cs[0].QP().ToError()
		return []byte("x"), nil
	})
	require.ErrorIs(t, err, lockoffload.ErrBroken)
}

// Money goes between slots, by clients that name them in any order: none waits for
// ever, and a client that has the locks sees a sum that is always the same.
func TestLocksOfSeveralSlots(t *testing.T) {
	ctx := within(t, stuck)
	const accounts, money = 4, 1000
	cs := newRig(t, lockoffload.Layout{Slots: accounts, Size: 8}, long).clients(3, lockoffload.Retry{})
	pay := func(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }
	all := []int{2, 0, 3, 1}
	require.NoError(t, updateSlots(ctx, cs[0], all, func(old [][]byte) ([][]byte, error) {
		return [][]byte{pay(0), pay(money), pay(0), nil}, nil
	}))
	data, res, err := cs[1].Read(ctx, 1, make([]byte, 8))
	require.NoError(t, err)
	require.Empty(t, data)
	require.Zero(t, res.Version, "a nil entry leaves its slot as it is")
	data, _, err = cs[1].Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, money, number(data), "in the order in which they were named")
	balance := func(b []byte) int64 { return int64(number(append(b, make([]byte, 8-len(b))...))) }
	audit := func(old [][]byte) ([][]byte, error) {
		sum := int64(0)
		for _, b := range old {
			sum += balance(b)
		}
		if sum != money {
			t.Errorf("%d in all, %d were paid in", sum, money)
		}
		return make([][]byte, len(old)), nil
	}
	var wg sync.WaitGroup
	for _, c := range cs {
		for range 2 {
			wg.Go(func() {
				for i := range 15 {
					p := rand.Perm(accounts)[:2]
					err := updateSlots(ctx, c, p, func(old [][]byte) ([][]byte, error) {
						a, b := balance(old[0]), balance(old[1])
						return [][]byte{pay(a - 1), pay(b + 1)}, nil
					})
					if err == nil && i%5 == 0 {
						err = updateSlots(ctx, c, all, audit)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// A client whose connection dies under several locks changes nothing that it did not
// begin to write.
func TestLocksOfADeadClient(t *testing.T) {
	t.Parallel()
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8}, 2*time.Second)
	dying, _ := r.client(lockoffload.Retry{})
	other, _ := r.client(lockoffload.Retry{})
	err := updateSlots(ctx, dying, []int{0, 1}, func([][]byte) ([][]byte, error) {
		_ = dying.QP().ToError()
		<-dying.Lost()
		return [][]byte{[]byte("a"), []byte("b")}, nil
	})
	require.ErrorIs(t, err, lockoffload.ErrLost)
	require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown)
	require.NoError(t, updateSlots(ctx, other, []int{0, 1}, func(old [][]byte) ([][]byte, error) {
		require.Equal(t, [][]byte{{}, {}}, old)
		return old, nil
	}))
}

// Those whose context ends do not wait for a wire on which nothing comes through. What
// they began happens when it does again.
func TestContextsEndWaits(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ctx := within(t, stuck)
	for !contextsEndWaits(ctx, t) {
		t.Log("a request was completed without its result, which ends a connection; once more")
	}
}

// contextsEndWaits reports whether the connection was there to the end. What Soft-RoCE does
// to requests that it sends again, which are many here, may break it: see the package.
func contextsEndWaits(ctx context.Context, t *testing.T) bool {
	r := newRig(t, lockoffload.Layout{Slots: 3, Size: 8}, long)
	r.way = endless
	// Once is enough. A WRITE that comes twice, because the machine was too busy to acknowledge
	// the first one in time, can cost Soft-RoCE the result of an atomic behind it.
	r.way.AckTimeout = 500 * time.Millisecond
	c, _ := r.client(lockoffload.Retry{})
	other, _ := r.client(lockoffload.Retry{})
	held, err := c.LockAll(ctx, 1, 2)
	require.NoError(t, err)
	_, err = held[0].Write(ctx, 0, []byte("commit"))
	require.NoError(t, err)
	_, err = held[1].Write(ctx, 0, []byte("unlock"))
	require.NoError(t, err)

	const brief = 50 * time.Millisecond
	update, end := context.WithCancel(ctx)
	isSoon(t, "update", func() error {
		_, err := c.Update(update, 0, func([]byte) ([]byte, error) {
			lab.ImpairWire(t, lab.Impairment{Loss: 1})
			time.AfterFunc(brief, end)
			return []byte("update"), nil
		})
		require.ErrorIs(t, err, lockoffload.ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.Canceled)
		return nil
	})
	for what, f := range map[string]func(context.Context) error{
		"commit": held[0].Commit,
		"unlock": held[1].Unlock,
	} {
		isSoon(t, what, func() error {
			ctx, cancel := context.WithTimeout(ctx, brief)
			defer cancel()
			require.ErrorIs(t, f(ctx), context.DeadlineExceeded)
			return nil
		})
	}
	isSoon(t, "behind a commit that is under way", func() error {
		ctx, cancel := context.WithTimeout(ctx, brief)
		defer cancel()
		_, _, err := held[0].Read(ctx, 0, make([]byte, 8))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, held[0].Unlock(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, lockoffload.UnlockAll(ctx, held), context.DeadlineExceeded)
		return nil
	})
	lab.ImpairWire(t, lab.Impairment{})
	var got []string
	locks, cancel := context.WithCancel(ctx)
	defer cancel()
	lives := make(chan struct{})
	go func() {
		select {
		case <-c.Lost():
			cancel() // they are free when its lease is over
		case <-lives:
		}
	}()
	err = updateSlots(locks, other, []int{0, 1, 2}, func(old [][]byte) ([][]byte, error) {
		for _, b := range old {
			got = append(got, string(b))
		}
		return old, nil
	})
	close(lives)
	flushed := c.Flush(ctx)
	if lockoffload.IsConnectionError(flushed) || locks.Err() != nil {
		return false
	}
	require.NoError(t, err)
	require.Equal(t, []string{"update", "commit", "unlock"}, got)
	require.NoError(t, flushed)
	return true
}
