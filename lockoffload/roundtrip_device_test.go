//go:build linux

package lockoffload_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
)

// A chain of the agent, and a conditional write, take one round trip: with a
// delay that dwarfs all else, less than two.
func TestAgentAndSwapTakeOneRoundTrip(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 16, Records: 2, Clients: 2, Swap: 4}, nil)
	r.way.AckTimeout = 2 * time.Second // longer than the way, or all is sent twice
	caller, side := r.caller(nil), r.side()
	_, res, err := side.SwapRead(ctx, 0, make([]byte, 16))
	require.NoError(t, err)
	const oneWay = 50 * time.Millisecond
	lab.ImpairWire(t, lab.Impairment{Delay: oneWay})
	version := res.Version
	best := func(op func() error) time.Duration { // of as many as a busy machine needs
		least := time.Hour
		for n := 0; n < 4 || n < 50 && least >= 4*oneWay; n++ {
			start := time.Now()
			require.NoError(t, op())
			least = min(least, time.Since(start))
		}
		return least
	}
	chain := best(func() error {
		_, err := caller.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 16), writeOf(0, "both"), writeOf(1, "records")}})
		return err
	})
	swap := best(func() error {
		res, err := side.SwapWrite(ctx, 0, version, []byte("swapped"))
		version = res.Version
		return err
	})
	t.Logf("round trip %v; chain %v, swap %v", 2*oneWay, chain, swap)
	for _, d := range []time.Duration{chain, swap} {
		require.Greater(t, d, 2*oneWay)
		require.Less(t, d, 4*oneWay)
	}
}

// One packet in ten is lost, in both directions.
func TestAgentUnderLoss(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	c := r.caller(func(cfg *lockoffload.CallerConfig) { cfg.Reissue = 200 * time.Millisecond })
	_, err := c.Do(ctx, &lockoffload.Chain{}) // from now on chains say for which agent they are
	require.NoError(t, err)
	lab.ImpairWire(t, lab.Impairment{Loss: 0.1})
	const chains = 40
	for range chains {
		_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		require.NoError(t, err)
	}
	require.EqualValues(t, chains, r.version(c, 0))
	t.Logf("%+v", r.agent.Stats())
}
