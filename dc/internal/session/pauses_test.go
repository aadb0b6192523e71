package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestPauses between the copies of what a target does not reply to double, to an eighth of the
// time after which it is given up. The next time it is asked without a context.
func TestPauses(t *testing.T) {
	for _, kind := range []wire.Kind{wire.Connect, wire.Probe} {
		b := newBench(t, 1, nil)
		b.now = time.Second
		begin := b.now
		p := b.peer(1)
		p.alive = kind == wire.Connect
		b.Enqueue(p, 1, b.now)
		var sent []time.Duration
		for as := b.taken(); ; as = b.tick() {
			require.Len(t, as, 1)
			if as[0].Kind == ActFail {
				require.ErrorIs(t, as[0].Err, ErrUnreachable)
				break
			}
			m := as[0].Message
			require.Equal(t, kind, m.Kind)
			if kind == wire.Probe {
				require.EqualValues(t, b.now/time.Millisecond, m.Wait, "by which its reply is timed")
			}
			sent = append(sent, (b.now-begin)/time.Millisecond)
		}
		require.Equal(t, []time.Duration{0, 10, 30, 70, 150, 275, 400, 525, 650, 775, 900}, sent)
		require.Equal(t, b.ConnectTimeout, b.now-begin)
		require.EqualValues(t, len(sent)-1, b.Stats.Retransmits)
		require.False(t, p.Waiting())
		b.Enqueue(p, 1, b.now)
		require.Equal(t, []any{wire.Probe}, kindsOf(b.taken()))
	}
}

// TestNoLease: a session that its target does not end has no keep-alives.
func TestNoLease(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, b.now)
	b.taken()
	require.Equal(t, []any{ActJoin}, b.said(p, wire.Message{Kind: wire.Attached, Attempt: p.ctx.Session.Attempt, Session: 3, QPN: 99, MTU: 3}))
	b.Joined(p.ctx, nil, b.now)
	b.Took(p, 1)
	b.Posted(p.ctx, 1, 1)
	b.Completed(p.ctx, 1, false, b.now)
	b.taken()
	require.Equal(t, Never, b.Next())
	b.Tick(time.Hour)
	require.Empty(t, b.taken())
}

// TestEarlyTicks do nothing: a message is sent when it is due, and again after a while. So is
// a context repaired.
func TestEarlyTicks(t *testing.T) {
	b := newBench(t, 1, nil)
	early := func() {
		t.Helper()
		b.Tick(b.Next() - 1)
		require.Empty(t, b.taken())
	}
	p := b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.taken()
	early()
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	b.connected(p, 9, 1, 0)
	b.taken()
	require.True(t, b.Remove(p, b.now))
	b.disconnects = nil
	b.taken()
	b.ResetDone(&b.Contexts[0], errors.New("no queue pair"), b.now)
	early()
	require.Equal(t, []any{ActReset}, kindsOf(b.tick()))
	b.ResetDone(&b.Contexts[0], nil, b.now)
	b.attach(b.peer(1), 3)
	early()
	require.Equal(t, []any{wire.KeepAlive}, kindsOf(b.tick()))
	b.Tick(b.now)
	require.Empty(t, b.taken())
	require.Greater(t, b.Next(), b.now+time.Second)
}

// TestLooksAnew: how long a context makes no progress counts from when its target came.
func TestLooksAnew(t *testing.T) {
	b := newBench(t, 1, nil)
	b.now = time.Minute
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	b.Enqueue(q, 1, b.now)
	b.Enqueue(p, 1, b.now)
	require.Same(t, &x.line, p.line)
	b.Tick(b.now + time.Millisecond)
	require.Same(t, &x.line, p.line)
	b.ResetDone(x, nil, b.now)
	b.connected(q, 4, 1, 0)
	require.Same(t, p, x.peer)
	require.EqualValues(t, 1, p.Stats.Resumes)
	b.now += time.Minute / 8
	b.Joined(x, nil, b.now)
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, false, b.now)
	b.moved(b.peer(3), 5) // and p again, long after
	b.now += time.Second
	b.Enqueue(p, 1, b.now)
	require.Same(t, p, x.peer)
	b.Enqueue(q, 1, b.now)
	require.Same(t, &x.line, q.line)
	b.Tick(b.now + time.Millisecond)
	require.Same(t, &x.line, q.line)
}

// TestHoldWithoutRequests: a target whose requests are not posted, for whatever reason, keeps a
// context no longer than others.
func TestHoldWithoutRequests(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	b.Enqueue(p, 2, b.now)
	b.Enqueue(q, 1, b.now)
	require.Same(t, p, x.peer)
	b.now += b.Hold - 1
	b.Tick(b.now)
	require.Same(t, p, x.peer)
	b.now++
	b.Tick(b.now)
	require.Same(t, q, x.peer)
	require.True(t, p.Waiting())
}
