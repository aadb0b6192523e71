package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestMoved: a queue pair that names a place that the local address has left is
// connected anew before its context's next request, and not before its last one has ended.
// Sessions that are kept stay so.
func TestMoved(t *testing.T) {
	b := newBench(t, 3, nil)
	idle, busy, late := b.peer(7), b.peer(8), b.peer(9)
	b.attach(idle, 1)
	y := b.attach(busy, 2)
	b.Posted(y, 1, 1)
	b.Enqueue(late, 1, b.now)
	b.answer(late, 3)
	b.taken()
	z := late.ctx
	b.Moved(b.now)
	require.Nil(t, idle.ctx)
	require.True(t, y.Peer() == busy && !y.Attached() && y.Live())
	require.Empty(t, b.taken(), "nobody is told")
	b.Completed(y, 1, false, b.now)
	require.Nil(t, busy.ctx)
	b.Joined(z, nil, b.now) // perhaps by the place before
	require.Equal(t, ActJoin, b.taken()[1].Kind, "anew, for the request that waits")
	b.Joined(late.ctx, nil, b.now)
	require.True(t, late.ctx.Attached())
	for _, p := range []*Peer{idle, busy} {
		b.taken()
		b.Enqueue(p, 1, b.now)
		as := b.taken()
		require.Equal(t, []any{ActJoin}, kindsOf(as), "without a message")
		require.True(t, as[0].Again)
		b.Joined(p.ctx, nil, b.now)
		require.True(t, p.ctx.Attached())
	}
	require.Zero(t, b.Stats.Failures)
}

// TestMovedUnderRequests that fail: the session is over, as with any other failure.
func TestMovedUnderRequests(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(7)
	x := b.attach(p, 1)
	b.Posted(x, 2, 2)
	b.Moved(b.now)
	b.Completed(x, 1, true, b.now)
	b.Completed(x, 1, true, b.now)
	require.Equal(t, []any{ActAbort, ActLost, wire.Detach, ActReset}, kindsOf(b.taken()))
	b.ResetDone(x, nil, b.now)
	b.Enqueue(p, 1, b.now)
	b.connected(p, 2, 1, 0)
	require.True(t, x.Attached())
	require.False(t, x.moved)
}

// TestTargetMoved: its sessions end, and initiators ask for others before they send
// anything. One that has not heard of its session asks again.
func TestTargetMoved(t *testing.T) {
	c, io := newTestTarget(2)
	for n := range uint64(2) {
		c.Received(from(n, wire.Connect), 0)
	}
	io.sent = nil
	c.Moved(time.Second)
	require.Equal(t, []bool{false, false}, io.released, "with other numbers")
	require.Len(t, io.sent, 2)
	require.Empty(t, c.sessions)
	for _, m := range io.sent {
		require.Equal(t, wire.Refused, m.Kind)
		require.Equal(t, wire.StaleSession, m.Reason)
		require.NotZero(t, m.Session)
	}
	b := newBench(t, 3, nil)
	kept, attached, asked := b.peer(7), b.peer(8), b.peer(9)
	b.attach(kept, 1)
	b.Moved(b.now)
	x := b.attach(attached, 2)
	b.Enqueue(asked, 1, b.now)
	b.taken()
	for n, p := range []*Peer{kept, attached, asked} {
		s := &p.kept
		if p.ctx != nil {
			s = &p.ctx.Session
		}
		b.Received(&wire.Message{Kind: wire.Refused, Reason: wire.StaleSession, Sender: 1, Context: uint32(s.Context), Attempt: s.Attempt, Peer: p.Number, Session: uint64(n + 1), From: p.at}, b.now)
	}
	require.NotContains(t, kindsOf(b.taken()), ActFail)
	require.Zero(t, kept.kept)
	require.False(t, x.Live())
	b.answer(asked, 4)
	b.Joined(asked.ctx, nil, b.now)
	require.True(t, asked.ctx.Attached())
}
