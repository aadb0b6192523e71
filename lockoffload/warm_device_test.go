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

func TestWarmReadsAndUpdatesDoNotAllocate(t *testing.T) {
	ctx := within(t, 30*time.Second)
	c, _ := newRig(t, lockoffload.Layout{Slots: 2, Size: 64, Records: 2}, time.Minute).client(lockoffload.Retry{})
	data, dst := make([]byte, 64), make([]byte, 64)
	change := func([]byte) ([]byte, error) {
		data[0]++
		return data, nil
	}
	update := func() {
		if _, err := c.Update(ctx, 1, change); err != nil {
			t.Error(err)
		}
	}
	async := lockoffload.Chain{Slot: 1, Async: true, Accesses: []lockoffload.Access{readOf(0, 0), writeOf(0, "")}}
	async.Change = func(a []lockoffload.Access) (err error) {
		a[1].Data, err = change(a[0].Data)
		return err
	}
	post := func() {
		res, err := c.Do(ctx, &async)
		if err == nil {
			err = res.Commit.Wait(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	reads := lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{readOf(0, 64), readOf(1, 64), compareWith(1, 0)}}
	do := func() {
		if res, err := c.Do(ctx, &reads); err != nil || reads.Accesses[0].Data[0] != data[0] || res.Protocol != lockoffload.ProtocolRead {
			t.Error(reads, res, err)
		}
	}
	read := func() {
		got, res, err := c.Read(ctx, 1, dst)
		if err != nil || len(got) != 64 || got[0] != data[0] || res.Protocol != lockoffload.ProtocolRead {
			t.Error(got, res, err)
		}
	}
	update()
	require.Zero(t, testing.AllocsPerRun(500, read))
	require.Zero(t, testing.AllocsPerRun(500, update))
	require.EqualValues(t, 1, testing.AllocsPerRun(500, post), "the Commit")
	require.Zero(t, testing.AllocsPerRun(500, do))
	read()
}

// What a call that gave up has under way is apart from what comes next.
func TestMemoryOfGivenUpReadsIsNotUsedAgain(t *testing.T) {
	ctx := within(t, time.Minute)
	c, _ := newRig(t, lockoffload.Layout{Slots: 3, Size: 8}, time.Minute).client(lockoffload.Retry{})
	for slot, data := range []string{"zero", "one", "two"} {
		_, err := updateAsync(ctx, c, slot, func([]byte) ([]byte, error) { return []byte(data), nil })
		require.NoError(t, err)
	}
	require.NoError(t, c.Flush(ctx))
	lab.ImpairWire(t, lab.Impairment{Delay: 150 * time.Millisecond})
	for range 2 { // then with jobs that were given back
		for slot, data := range []string{"zero", "one", "two"} {
			if slot < 2 {
				hasty, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				_, _, err := c.Read(hasty, slot, make([]byte, 8))
				cancel()
				require.ErrorIs(t, err, lockoffload.ErrNotAcquired)
				continue
			}
			got, _, err := c.Read(ctx, slot, make([]byte, 8))
			require.NoError(t, err)
			require.Equal(t, data, string(got))
		}
	}
	require.NoError(t, c.Flush(ctx))
}
