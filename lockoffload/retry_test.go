package lockoffload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// Pauses begin with a round trip, or what is set, and grow to what is set.
func TestPauses(t *testing.T) {
	r := Retry{Min: 10 * time.Microsecond, Max: time.Millisecond}
	for failed, want := range map[int]time.Duration{0: 100, 1: 200, 2: 400, 3: 800, 4: 1000, 1 << 40: 1000} {
		require.Equal(t, want*time.Microsecond, r.pause(100*time.Microsecond, failed))
	}
	require.Equal(t, r.Min, r.pause(0, 0), "nothing is known yet")
	require.Equal(t, 2*r.Min, r.pause(time.Microsecond, 1))
	require.Equal(t, r.Max, r.pause(time.Second, 0))
}

func TestPaceFollowsRequests(t *testing.T) {
	var p pace
	require.Zero(t, p.roundTrip())
	p.note(time.Millisecond)
	require.Equal(t, time.Millisecond, p.roundTrip())
	p.note(9 * time.Millisecond)
	require.Equal(t, 2*time.Millisecond, p.roundTrip(), "one that was late does not count for much")
	for range 100 {
		p.note(10 * time.Microsecond)
	}
	require.Less(t, p.roundTrip(), 20*time.Microsecond)
}

// newPausing is a call on its way.
func newPausing() (*job, *machine.Acquire) {
	c := &Client{cfg: Config{Retry: Retry{}.withDefaults()}}
	c.pace.note(time.Millisecond)
	m := &machine.Acquire{}
	j := &job{c: c, mr: new(verbs.MR)}
	j.prepare(m)
	m.Missed = true
	return j, m
}

// Each call begins anew. A client that has the lock and waits for readers looks often.
func TestPausesOfACall(t *testing.T) {
	j, m := newPausing()
	for range 2 {
		for _, want := range []time.Duration{1, 2, 4} {
			require.Equal(t, want*time.Millisecond, j.pause())
		}
		j.prepare(m)
	}
	m.Missed = false
	for range 2 {
		require.Equal(t, j.c.cfg.Retry.Min, j.pause())
	}
}

// A client that waits for a lock that the agent hands on looks at it while it is let go.
func TestPausesFindTheGap(t *testing.T) {
	j, m := newPausing()
	for range 20 {
		j.pause()
	}
	require.Equal(t, j.c.cfg.Retry.Max, j.pause())
	m.HandedOn = true
	longest := j.pause() * 3 / 2 // see sleep
	require.Less(t, longest, machine.TurnGap)
}
