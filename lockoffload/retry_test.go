package lockoffload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

func TestBackoff(t *testing.T) {
	b := backoff{min: time.Millisecond, max: 4 * time.Millisecond}
	for range 8 * backoffWindow {
		b.note(true)
	}
	require.Equal(t, b.max, b.pause)
	for range 8 * backoffWindow {
		b.note(false)
	}
	require.Equal(t, b.min, b.pause)
}

// Pauses are a slot's own, and become short again when its lock is free.
func TestPausesFollowTheSlot(t *testing.T) {
	c := &Client{cfg: Config{Retry: Retry{}.withDefaults()}, backs: map[int]*backoff{}, counts: map[int]*Counts{}}
	for range 4 * backoffWindow {
		c.pause(1, true)
	}
	long := c.pause(1, true)
	require.Equal(t, 16*c.cfg.Retry.Min, long)
	require.Equal(t, c.cfg.Retry.Min, c.pause(2, true))
	for range 2 * backoffWindow {
		j := &job{c: c, m: &machine.Acquire{}, slot: 1}
		j.m.Base().Count.Acquired = 1
		j.finish()
	}
	require.Less(t, c.pause(1, true), long)
}

// Who waits for a lock that the agent hands on looks at it while it is let go.
func TestPausesFindTheGap(t *testing.T) {
	c := &Client{cfg: Config{Retry: Retry{}.withDefaults()}, backs: map[int]*backoff{}}
	m := &machine.Acquire{}
	m.Missed = true
	j := &job{c: c, m: m, slot: 1}
	for range 20 * backoffWindow {
		j.pause()
	}
	require.Equal(t, c.cfg.Retry.Max, j.pause())
	m.HandedOn = true
	longest := j.pause() * 3 / 2 // see sleep
	require.Less(t, longest, machine.TurnGap)
}
