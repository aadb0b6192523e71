package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestFirstContact: a target that was never heard of is asked whether it is there before
// it gets a context, so that those that do not reply hold none.
func TestFirstContact(t *testing.T) {
	b := newBench(t, 2, nil)
	for n := range uint32(40) {
		b.Enqueue(b.newPeer(100+n), 1, b.now)
	}
	live := b.newPeer(1)
	b.Enqueue(live, 1, b.now)
	for _, kind := range kindsOf(b.taken()) {
		require.Equal(t, wire.Probe, kind)
	}
	require.Nil(t, live.ctx)
	b.now += time.Millisecond
	require.Equal(t, []any{wire.Connect}, b.said(live, wire.Message{Kind: wire.Alive}))
	b.answer(live, 9)
	b.Joined(live.ctx, nil, b.now)
	b.taken()
	failed := 0
	for failed < 40 && b.now < time.Minute {
		for _, a := range b.tick() {
			require.NotEqual(t, wire.Connect, a.Message.Kind)
			if a.Kind == ActFail {
				require.ErrorIs(t, a.Err, ErrUnreachable)
				require.LessOrEqual(t, b.now, b.ConnectTimeout+1)
				failed++
			}
		}
	}
	require.Equal(t, 40, failed)
	require.Zero(t, b.Stats.GaveWay)
}

// TestRecallOfUnknown session: the reply that gave it was lost, or came when the
// target was not wanted any more. It is given back.
func TestRecallOfUnknown(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, b.now)
	b.taken()
	recall := func(attempt uint32) {
		b.Received(&wire.Message{Kind: wire.Recall, Sender: 1, Attempt: attempt, Peer: p.Number, Session: 33, From: p.at}, b.now)
	}
	recall(p.ctx.Session.Attempt)
	require.Empty(t, b.taken(), "the answer is late, and counts")
	recall(p.ctx.Session.Attempt + 7)
	recall(p.ctx.Session.Attempt + 7)
	as := b.taken()
	require.Equal(t, []any{wire.Detach}, kindsOf(as))
	require.EqualValues(t, 33, as[0].Message.Session)
}

// TestBusyAfterRepetition: a copy of the connect packet may be served after the busy
// reply to the first one, so it is taken back.
func TestBusyAfterRepetition(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, b.now)
	busy := func() []any {
		attempt := p.ctx.Session.Attempt
		b.Received(&wire.Message{Kind: wire.Busy, Sender: 1, Attempt: attempt, Peer: p.Number, Wait: 10, From: p.at}, b.now)
		require.Nil(t, p.ctx)
		return kindsOf(b.taken())
	}
	b.taken()
	require.Empty(t, busy())
	for p.ctx == nil {
		b.tick()
	}
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Detach}, busy())
}

// TestGivesWayForAWhile: a silent target of which a session alone is wanted is probed too.
func TestGivesWayForAWhile(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(p, 0, b.now)
	b.Enqueue(other, 1, b.now)
	b.tick()
	require.Contains(t, kindsOf(b.tick()), any(wire.Probe))
	require.Equal(t, probed, p.rest)
}

// TestGivesWayUnwanted: a silent target that is not wanted any more when others want its
// context waits for nothing, so that it can be removed.
func TestGivesWayUnwanted(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.Enqueue(other, 1, b.now)
	b.Withdraw(p, 1, false)
	b.taken()
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Detach, wire.Connect}, kindsOf(b.tick()), "what it was asked for is taken back")
	require.Same(t, other, b.Contexts[0].peer)
	require.False(t, p.Waiting())
	require.True(t, b.Remove(p, b.now))
	b.Withdraw(other, 1, false)
	for b.now < 3*b.ConnectTimeout && b.Next() < Never {
		for _, a := range b.tick() {
			require.NotEqual(t, wire.Probe, a.Message.Kind)
			require.False(t, a.Kind == ActFail && a.Peer == p)
		}
	}
	// What was given up long ago does not count when it is wanted again.
	b = newBench(t, 1, nil)
	p = b.peer(3)
	b.Enqueue(p, 1, b.now)
	b.Enqueue(b.peer(4), 1, b.now)
	b.Withdraw(p, 1, false)
	b.tick()
	b.tick()
	b.now += 2 * b.ConnectTimeout
	b.Enqueue(p, 1, b.now)
	b.Tick(b.now + time.Millisecond)
	for _, a := range b.taken() {
		require.False(t, a.Kind == ActFail && a.Peer == p)
	}
}
