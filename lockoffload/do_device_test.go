//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// The same chains with and without an agent: the same results, other forms.
func TestDoChoosesForms(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 8, Records: 2}, nil)
	plain, helped := r.side(), r.side()
	helped.UseAgent(r.caller(nil))
	for slot, c := range []*lockoffload.Client{plain, helped} {
		want := lockoffload.ProtocolTwoStep
		if c == helped {
			want = lockoffload.ProtocolAgent
		}
		do := func(form lockoffload.Protocol, accesses ...lockoffload.Access) (lockoffload.Chain, error) {
			for try := 0; ; try++ {
				ch := lockoffload.Chain{Slot: slot, Accesses: slices.Clone(accesses)}
				began := time.Now()
				res, err := c.Do(ctx, &ch)
				if form == lockoffload.ProtocolRead && res.Protocol != form && time.Since(began) > machine.ReadTime(0) && try < 20 {
					continue // see readIn
				}
				require.Equal(t, form, res.Protocol)
				return ch, err
			}
		}
		ch, err := do(want, readOf(0, 8), writeOf(0, "one"), writeOf(1, "two"), readOf(0, 8), compareWith(1, 0))
		require.NoError(t, err)
		require.Empty(t, ch.Accesses[0].Data)
		require.Equal(t, "one", string(ch.Accesses[3].Data))
		require.Equal(t, []uint64{0, 1, 1, 1, 1}, versions(ch))

		ch, err = do(want, compareWith(0, 1), compareWith(1, 5), writeOf(0, "never"), readOf(1, 8))
		require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
		require.Equal(t, "two", string(ch.Accesses[3].Data))
		require.Equal(t, []uint64{1, 1, 1, 1}, versions(ch))

		ch, err = do(lockoffload.ProtocolRead, readOf(0, 8), readOf(1, 8))
		require.NoError(t, err)
		require.Equal(t, "one", string(ch.Accesses[0].Data))
		ch, err = do(lockoffload.ProtocolRead, readOf(1, 8), compareWith(1, 1))
		require.NoError(t, err)
		require.Equal(t, "two", string(ch.Accesses[0].Data))
		_, err = do(lockoffload.ProtocolRead, compareWith(1, 2))
		require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)

		tries := lockoffload.Chain{Slot: slot, Tries: 3, Accesses: []lockoffload.Access{readOf(0, 8), compareWith(1, 1)}}
		readIn(t, ctx, lockoffload.ProtocolReadChain, func(ctx context.Context) (lockoffload.Result, error) { return c.Do(ctx, &tries) })
		require.Equal(t, "one", string(tries.Accesses[0].Data))
		require.Equal(t, []uint64{1, 1}, versions(tries))
		tries.Accesses[1].Version = 2
		_, err = c.Do(ctx, &tries)
		require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)

		oh := errors.New("oh")
		change := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{readOf(0, 0), writeOf(1, "")}}
		change.Change = func(a []lockoffload.Access) error {
			require.Equal(t, "one", string(a[0].Data))
			a[1].Data = []byte("never")
			return oh
		}
		res, err := c.Do(ctx, &change)
		require.ErrorIs(t, err, oh)
		require.Equal(t, lockoffload.ProtocolTwoStep, res.Protocol)
		for _, ch := range []lockoffload.Chain{
			{Fair: true, Accesses: change.Accesses, Change: change.Change},
			{Accesses: []lockoffload.Access{readOf(0, 8)}, Change: change.Change},
			{Accesses: []lockoffload.Access{readOf(0, 8)}, Async: true},
			{},
		} {
			_, err := c.Do(ctx, &ch)
			require.ErrorIs(t, err, lockoffload.ErrConfig)
		}

		fair := lockoffload.Chain{Slot: slot, Fair: true, Accesses: []lockoffload.Access{readOf(0, 8), writeOf(1, "too")}}
		res, err = c.Do(ctx, &fair)
		if c == helped {
			require.NoError(t, err)
			require.Equal(t, want, res.Protocol)
			require.Equal(t, []uint64{1, 2}, versions(fair))
		} else {
			require.ErrorIs(t, err, lockoffload.ErrNoAgent)
			_, _, err = c.Lock(ctx, slot, lockoffload.LockOptions{Mode: lockoffload.Fair})
			require.ErrorIs(t, err, lockoffload.ErrNoAgent)
		}
		fair.Shared = true
		_, err = c.Do(ctx, &fair)
		require.ErrorIs(t, err, lockoffload.ErrConfig)

		held, _, err := plain.Lock(ctx, slot, lockoffload.LockOptions{})
		require.NoError(t, err)
		for _, ch := range []lockoffload.Chain{{Tries: 2}, {Deadline: 20 * time.Millisecond}} {
			ch.Slot, ch.Accesses = slot, []lockoffload.Access{writeOf(0, "never")}
			res, err := c.Do(ctx, &ch)
			require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
			require.Equal(t, want, res.Protocol)
		}
		require.NoError(t, held.Unlock(ctx))
	}
	closed := r.caller(nil)
	_, err := closed.Do(ctx, &lockoffload.Chain{Async: true, Accesses: []lockoffload.Access{writeOf(0, "late")}})
	require.ErrorIs(t, err, lockoffload.ErrConfig)
	require.NoError(t, closed.Close())
	helped.UseAgent(closed)
	res, err := helped.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "alone")}})
	require.NoError(t, err)
	require.Equal(t, lockoffload.ProtocolTwoStep, res.Protocol, "the agent was not even asked")
}

func versions(ch lockoffload.Chain) (v []uint64) {
	for _, a := range ch.Accesses {
		v = append(v, a.Version)
	}
	return v
}

// Clients with and without an agent count in one record, each step a compare
// and a write.
func TestDoCounts(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	const each = 50
	var wg sync.WaitGroup
	for i := range 4 {
		c := r.side()
		if i%2 == 0 {
			c.UseAgent(r.caller(nil))
		}
		wg.Go(func() {
			read := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 8)}}
			for n := 0; n < each; {
				if _, err := c.Do(ctx, &read); err != nil {
					t.Error(err)
					return
				}
				now := read.Accesses[0]
				next := binary.LittleEndian.AppendUint64(nil, counted(now.Data)+1)
				_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{compareWith(0, now.Version), writeOf(0, string(next))}})
				switch {
				case err == nil:
					n++
				case !errors.Is(err, lockoffload.ErrVersionMismatch):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	data, res, err := r.side().Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.EqualValues(t, 4*each, counted(data))
	require.EqualValues(t, 4*each, res.Version)
}
