package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// alive answers the probe of a peer.
func (b *bench) alive(p *Peer) {
	b.Received(&wire.Message{Kind: wire.Alive, Sender: 1, Peer: p.Number, From: p.at}, b.now)
}

// TestFirstContact: of targets that nobody has heard of, those that do not answer
// hold a context for about as long as an answer takes, and none if all are in use.
func TestFirstContact(t *testing.T) {
	b := newBench(t, 2, nil)
	b.Retransmit = 50 * time.Millisecond
	b.measure(2 * time.Millisecond)
	for n := range uint32(40) {
		b.Enqueue(b.stranger(100+n), 1, b.now)
	}
	live := b.stranger(1)
	b.Enqueue(live, 1, b.now)
	kinds := kindsOf(b.taken())
	require.Len(t, kinds, 41)
	require.Equal(t, []any{wire.Connect, wire.Connect, wire.Probe}, kinds[:3])
	b.now += time.Millisecond
	b.alive(live)
	require.Nil(t, live.ctx)
	for live.ctx == nil && b.now < time.Minute {
		b.tick()
	}
	require.Less(t, b.now, 10*time.Millisecond)
	require.GreaterOrEqual(t, b.now, 2*time.Millisecond, "an answer takes so long")
	require.LessOrEqual(t, b.Stats.GaveWay, uint64(2))
	b.answer(live, 9)
	b.Joined(live.ctx, nil, b.now)
	b.taken()
	failed := 0
	for failed < 40 && b.now < time.Minute {
		for _, a := range b.tick() {
			if a.Kind == ActFail {
				require.ErrorIs(t, a.Err, ErrUnreachable)
				failed++
			}
		}
	}
	require.Equal(t, 40, failed)
	// Whoever is known has its packet repeated first, and who is alone as well.
	b = newBench(t, 1, nil)
	p := b.stranger(1)
	b.Enqueue(p, 1, b.now)
	b.taken()
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, connecting, p.ctx.state)
}

// TestPatience follows the answers that came too late for it.
func TestPatience(t *testing.T) {
	b := newBench(t, 1, nil)
	b.Retransmit = 50 * time.Millisecond
	b.measure(time.Millisecond)
	first := b.patience()
	require.Less(t, first, 10*time.Millisecond)
	for n := range uint32(6) {
		slow, other := b.stranger(10+2*n), b.stranger(11+2*n)
		b.Enqueue(slow, 1, b.now)
		x := slow.ctx
		require.NotNil(t, x)
		attempt, sent := x.Session.Attempt, b.now
		b.Enqueue(other, 1, b.now)
		b.alive(other)
		for slow.ctx != nil {
			b.tick()
		}
		b.now = max(b.now, sent+30*time.Millisecond)
		b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Context: uint32(x.Index), Attempt: attempt, Peer: slow.Number, Session: uint64(100 + n), QPN: 5, MTU: 3, Wait: 60000, From: slow.at}, b.now)
		require.EqualValues(t, 100+n, slow.kept.ID, "its session is not lost")
		for _, p := range []*Peer{slow, other} {
			b.Withdraw(p, 1, false)
			b.giveBack(p, b.now)
		}
		b.leave(x, b.now)
		b.clear(x, free)
		b.taken()
	}
	require.Greater(t, b.patience(), 30*time.Millisecond)
	b.rtt = time.Hour
	require.Equal(t, b.timeout(), b.patience())
}

// TestRecallOfUnknown session: the answer that gave it was lost, or came when the
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

// TestBusyAfterRepetition: a copy of the connect packet may be served after the first
// one was answered busy, so it is taken back.
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

// TestFirstContactWithWrongKey: whoever probably has the wrong key learns it after two
// packets, though others wait.
func TestFirstContactWithWrongKey(t *testing.T) {
	b := newBench(t, 1, nil)
	b.Enqueue(b.stranger(1), 1, b.now)
	p := b.stranger(2)
	p.Doubtful = true
	b.Enqueue(p, 1, b.now)
	b.Enqueue(b.peer(3), 1, b.now)
	b.taken()
	for b.now < b.ConnectTimeout/2 {
		for _, a := range b.tick() {
			if a.Kind == ActFail && a.Peer == p {
				return
			}
		}
	}
	t.Fatal("it still waits")
}

// TestGivesWayUnwanted: a silent target that nobody wants any more when others want its
// context waits for nothing, so that it can be removed.
func TestGivesWayUnwanted(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.Enqueue(other, 1, b.now)
	b.Withdraw(p, 1, false)
	b.taken()
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Same(t, other, b.Contexts[0].peer)
	require.False(t, p.Waiting())
	require.True(t, b.Remove(p, b.now))
	require.Equal(t, []any{wire.Detach}, kindsOf(b.taken()), "of what it was asked for")
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
