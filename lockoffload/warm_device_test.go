//go:build linux

package lockoffload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		res, err := c.Update(ctx, 1, change)
		if err == nil {
			err = res.Commit.Wait(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	read := func() {
		got, res, err := c.Read(ctx, 1, dst)
		if err != nil || len(got) != 64 || got[0] != data[0] || res.Form != lockoffload.FormReadChain {
			t.Error(got, res, err)
		}
	}
	update()
	require.Zero(t, testing.AllocsPerRun(500, read))
	require.EqualValues(t, 1, testing.AllocsPerRun(500, update), "the Commit")
	read()
}
