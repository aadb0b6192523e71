package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestIdleStays: a session without requests is not given up for a target that
// counts on another context; one with requests is when it has had its turn, and Next
// returns that time again.
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

// TestWaitsForItsContext: a target with a session of a context waits for that one, and not for
// others that have less to do, until it has waited for too long.
func TestWaitsForItsContext(t *testing.T) {
	for waits, elsewhere := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		b := newBench(t, 2, func(l *Limits) { l.Hold = time.Hour })
		p, q, later := b.peer(1), b.peer(2), b.peer(3)
		x := b.attach(p, 3)
		y := b.attach(q, 4)
		b.Posted(y, 1, 1)
		b.moved(b.peer(4), 5)
		b.Posted(x, 1, 1)
		begin := b.now
		b.Enqueue(p, 1, b.now)
		b.now = begin + waits
		b.Enqueue(later, 1, b.now)
		b.Completed(y, 1, false, b.now)
		require.Equal(t, elsewhere, y.peer == p, "after %v", waits)
		require.Equal(t, elsewhere, y.peer != later)
	}
}

// TestStaleInLine: a target that hears, while it waits for any context, that a session is over
// keeps its place.
func TestStaleInLine(t *testing.T) {
	b := newBench(t, 1, nil)
	x := b.attach(b.peer(1), 3)
	b.Posted(x, 1, 1)
	p, q := b.peer(2), b.peer(3)
	p.kept = Session{ID: 8, Attempt: 1}
	b.now = time.Second // it has lapsed
	b.Enqueue(p, 1, b.now)
	b.Enqueue(q, 1, b.now)
	b.said(p, wire.Message{Kind: wire.Refused, Reason: wire.StaleSession, Attempt: 1, Session: 8})
	b.Completed(x, 1, false, b.now)
	require.Same(t, p, x.peer)
}

// TestWaitsForReset: a target that waits for the context of its session goes elsewhere when
// that makes no progress for a while, and not because it is being reset after a busy reply
// of its target.
func TestWaitsForReset(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	b.now = time.Minute
	x := b.attach(p, 3)
	b.Enqueue(q, 1, b.now) // p's session is kept, and its queue pair still connected to it
	b.Enqueue(p, 1, b.now)
	require.True(t, x.resetting)
	require.Same(t, &x.line, p.line)
	b.Received(&wire.Message{Kind: wire.Busy, Sender: 1, Attempt: x.Session.Attempt, Peer: q.Number, Wait: 1000, From: q.at}, b.now)
	b.Tick(b.now + time.Millisecond)
	require.False(t, x.stuck)
	require.Same(t, &x.line, p.line)
	b.Tick(b.now + 2*b.Hold)
	require.True(t, x.stuck)
}

// TestWaitsAreCounted, by which a program learns that it has too few contexts.
func TestWaitsAreCounted(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	before := b.Counted()
	require.Zero(t, before.Waiting)
	b.Posted(x, 1, 1)
	b.Enqueue(q, 1, b.now)
	require.Equal(t, 1, b.Counted().Waiting)
	b.now += 70 * time.Millisecond
	b.Completed(x, 1, false, b.now)
	after := b.Counted()
	require.Zero(t, after.Waiting)
	require.EqualValues(t, 1, after.Waits-before.Waits)
	require.Equal(t, 70*time.Millisecond, after.Waited-before.Waited)
	require.Equal(t, 70*time.Millisecond, q.Stats.Waited)
	require.EqualValues(t, 1, after.Evictions-before.Evictions)
}
