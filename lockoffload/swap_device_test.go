//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

func TestSwap(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 2, Size: 16, Clients: 4, Swap: 4}, long).clients(3, lockoffload.Retry{})
	buf := make([]byte, 16)
	data, res, err := cs[0].SwapRead(ctx, 1, buf)
	require.NoError(t, err)
	require.Empty(t, data)
	require.Zero(t, res.Version)
	res, err = cs[0].SwapWrite(ctx, 1, 0, []byte("first"))
	require.NoError(t, err)
	require.Equal(t, lockoffload.Result{Protocol: lockoffload.ProtocolSwap, Version: 1, Tries: 1}, res)
	_, err = cs[1].SwapWrite(ctx, 1, 0, []byte("too late"))
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	res, err = cs[1].SwapWrite(ctx, 1, 1, []byte("second"))
	require.NoError(t, err)
	require.EqualValues(t, 2, res.Version)
	_, err = cs[0].SwapWrite(ctx, 1, 1, []byte("lost the race"))
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	for _, c := range cs {
		for range 2 {
			data, res, err = c.SwapRead(ctx, 1, buf)
			require.NoError(t, err)
			require.Equal(t, "second", string(data))
			require.EqualValues(t, 2, res.Version)
		}
	}
	_, err = cs[2].SwapWrite(ctx, 1, 2, nil)
	require.ErrorIs(t, err, lockoffload.ErrConfig, "the layout has copies for two owners")
	_, _, err = cs[0].SwapRead(ctx, 1, buf[:1])
	require.ErrorIs(t, err, lockoffload.ErrConfig)
}

// What a client saw in a session before says nothing of the private copies that it has now:
// another client may have had them in between, and one of them may be current.
func TestSwapOfANewSession(t *testing.T) {
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 16, Clients: 2, Swap: 4}, long)
	qp, cq, place, in := r.admit()
	c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	other, _ := r.client(lockoffload.Retry{})
	_, err = other.SwapWrite(ctx, 0, 0, []byte("one"))
	require.NoError(t, err)
	buf := make([]byte, 16)
	_, res, err := c.SwapRead(ctx, 0, buf)
	require.NoError(t, err)
	require.NoError(t, place.Evict())
	between, theirs := r.client(lockoffload.Retry{})
	require.Equal(t, in.Owner, theirs.Info().Owner)
	_, err = between.SwapWrite(ctx, 0, res.Version, []byte("two"))
	require.NoError(t, err)
	require.NoError(t, theirs.Evict())

	qp, cq, _, again := r.admit()
	require.Equal(t, in.Owner, again.Owner)
	require.NoError(t, c.Reconnect(ctx, qp, cq, again))
	_, err = c.SwapWrite(ctx, 0, res.Version, []byte("late"))
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	data, _, err := other.SwapRead(ctx, 0, buf)
	require.NoError(t, err)
	require.Equal(t, "two", string(data))
}

func TestSwapCounts(t *testing.T) {
	ctx := within(t, stuck)
	const each = 50
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 4, Swap: 8}, long).clients(3, lockoffload.Retry{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	unknown := uint64(0)
	for i, c := range cs {
		for range 2 {
			wg.Go(func() {
				patience := time.Microsecond
				for n := 0; n < each; {
					data, res, err := c.SwapRead(ctx, 0, make([]byte, 8))
					if err != nil {
						t.Error(err)
						return
					}
					try, cancel := ctx, context.CancelFunc(func() {})
					if i == 0 && n%10 == 9 { // some are given up in the middle
						try, cancel = context.WithTimeout(ctx, patience)
						patience *= 2 // a slow host posts nothing in a few of them
					} else {
						patience = time.Microsecond
					}
					_, err = c.SwapWrite(try, 0, res.Version, binary.LittleEndian.AppendUint64(nil, counted(data)+1))
					cancel()
					switch {
					case err == nil:
						n++
					case errors.Is(err, lockoffload.ErrOutcomeUnknown):
						mu.Lock()
						unknown++
						mu.Unlock()
						n++
					case !errors.Is(err, lockoffload.ErrVersionMismatch) && try == ctx:
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	data, res, err := cs[0].SwapRead(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, res.Version, counted(data), "one step for each version")
	require.LessOrEqual(t, counted(data), uint64(6*each))
	require.GreaterOrEqual(t, counted(data), 6*each-unknown)
	t.Logf("%d, %d unknown, %+v", counted(data), unknown, cs[0].Stats())
}

// endsAfter is a context that ends when it has been looked at so often.
type endsAfter struct {
	context.Context
	looks int
	done  chan struct{}
}

func (c *endsAfter) Done() <-chan struct{} { return c.done }

func (c *endsAfter) Err() error {
	switch c.looks--; {
	case c.looks > 0:
		return nil
	case c.looks == 0:
		close(c.done)
	}
	return context.Canceled
}

// A swap that is given up between its look at the pointer and its WRITE never writes: later swaps
// of the same client have made that private copy the current one by then.
func TestSwapThatIsGivenUp(t *testing.T) {
	ctx := within(t, stuck)
	const slots = 200
	r := newRig(t, lockoffload.Layout{Slots: slots, Size: 16, Clients: 2, Swap: 4}, long)
	c, _ := r.client(lockoffload.Retry{})
	for slot := range slots {
		_, err := c.SwapWrite(&endsAfter{ctx, 1 + slot%10, make(chan struct{})}, slot, 0, []byte("given up"))
		_, res, lerr := c.SwapRead(ctx, slot, make([]byte, 16))
		require.NoError(t, lerr)
		if err == nil || res.Version > 0 { // it came so far
			continue
		}
		_, err = c.SwapWrite(ctx, slot, 0, []byte("made"))
		require.NoError(t, err, "the version was just read")
		require.NoError(t, c.Flush(ctx))
		data, res, err := c.SwapRead(ctx, slot, make([]byte, 16))
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Version)
		require.Equal(t, "made", string(data))
	}
}
