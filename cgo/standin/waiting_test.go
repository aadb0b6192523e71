//go:build linux && cgo

package standin_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/internal/testseed"
)

// Whatever comes and goes between the calls of a step, no goroutine parks beside completions
// without an event, events do not pile up, and each that was read is acknowledged.
func TestWaitStepLosesNoWakeUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	rounds := 100_000
	if testing.Short() {
		rounds = 10_000
	}
	some := func() (m standin.Moment) {
		r := rng.Uint32()
		if r&3 == 0 {
			m.Come = uint8(r>>2) % 3
		}
		if r>>16&3 == 0 {
			m.Take = uint8(r>>18) % 3
		}
		return m
	}
	parked := 0
	for range rounds {
		parked += waitSome(t, rng, some)
	}
	require.Greater(t, parked, rounds)
}

// waitSome waits for a new queue a few times, and returns how many of the steps
// park.
func waitSome(t *testing.T, rng *rand.Rand, some func() standin.Moment) (parked int) {
	w, err := standin.NewWaiting()
	require.NoError(t, err)
	defer w.Close()
	if rng.IntN(2) == 0 {
		w.Notify = cgo.NotifyRXE
	}
	for range 2 + rng.IntN(10) {
		var others standin.Moments
		for i := range others {
			others[i] = some()
		}
		n, err := w.Step(1+rng.IntN(2), &others)
		require.NoError(t, err)
		if n == 0 {
			parked++
			if !w.Raised() && (w.Queued() > 0 || !w.Asked()) {
				t.Fatalf("it parks beside %d completions, and the next one raises an event: %v", w.Queued(), w.Asked())
			}
		}
		if read, acked, most := w.Events(); acked != read || most > 1 {
			t.Fatalf("of %d events that were read %d were acknowledged, and %d were unread at a time", read, acked, most)
		}
		w.Between(some())
	}
	return parked
}
