package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIdleStays: a session without requests is not given up because somebody waits who
// counts on another context; one with requests is when it has had its turn, and Next
// tells of that again.
func TestIdleStays(t *testing.T) {
	b := newBench(t, 2, nil)
	p, q, r := b.peer(1), b.peer(2), b.peer(3)
	x, y := b.attach(p, 3), b.attach(q, 4)
	require.True(t, b.Dismiss(q, b.now)) // y is being reset
	b.now += 10 * b.Hold
	b.Enqueue(r, 1, b.now)
	require.True(t, r.Waiting())
	b.Tick(b.now)
	require.Greater(t, b.Next(), b.now)
	require.Same(t, x, p.ctx)
	require.Zero(t, b.Stats.Evictions)

	b.Retime = false
	b.Posted(x, 1, 1)
	require.True(t, b.Retime, "its turn is over")
	require.LessOrEqual(t, b.Next(), b.now)
	b.Tick(b.now)
	require.False(t, x.Attached())
	b.ResetDone(y, nil, b.now)
	require.Same(t, y, r.ctx)
}
