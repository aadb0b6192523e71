package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestOtherSenders: a message counts only if it comes from where the target is.
func TestOtherSenders(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, 0)
	for _, change := range []func(*wire.Message){
		func(m *wire.Message) { m.From.QPN++ },
		func(m *wire.Message) { m.From.GID[3]++ },
		func(m *wire.Message) { m.Sender++ },
		func(m *wire.Message) { m.Context++ },
		func(m *wire.Message) { m.Peer++ },
		func(m *wire.Message) { m.From = wire.ControlAddress{} },
	} {
		m := wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 1, Session: 9, QPN: 5, MTU: 3, Wait: 1000, From: p.at}
		change(&m)
		b.Received(&m, 0)
		require.Equal(t, connecting, p.ctx.state)
	}
	require.EqualValues(t, 6, b.Stats.Malformed)
}

// TestNumbersOnlyGrow: a new session's packets are behind all of its context
// before, those of sessions that were taken up again too.
func TestNumbersOnlyGrow(t *testing.T) {
	b := newBench(t, 1, nil)
	highest := uint32(0)
	for n := range uint32(20) {
		p := b.peer(1 + n)
		b.Enqueue(p, 1, b.now)
		x := &b.Contexts[0]
		if x.resetting || x.state == resetting {
			b.ResetDone(x, nil, b.now)
		}
		require.Same(t, p, x.peer)
		first := x.Session.PSN
		if n > 0 {
			require.Positive(t, int32((first-highest)<<8), "session %d begins at %x after %x", n, first, highest)
			require.Less(t, (first-highest)&0xffffff, uint32(200))
		}
		b.connected(p, uint64(100+n), 1000, 0)
		highest = x.Session.PSN
		b.taken()
		b.now += 2 * timeWait
	}
}

// TestLateNumbers: a session is not taken up while acknowledgements of another
// target on the same host may be late, and is afterwards.
func TestLateNumbers(t *testing.T) {
	for _, free := range []bool{false, true} {
		b := newBench(t, 1, func(l *Limits) {
			if free {
				l.TimeWait = 0
			}
		})
		at := func(qpn uint32) *Peer {
			p := b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: qpn}})
			p.alive = true
			return p
		}
		p, q := at(1), at(2)
		x := b.attach(p, 3)
		turn := func(to *Peer) []any {
			b.Enqueue(to, 1, b.now)
			return kindsOf(b.taken())
		}
		// opened is a new session and a request, which took some time.
		opened := func(to *Peer, session uint64, took time.Duration) {
			b.t.Helper()
			require.Equal(t, []any{wire.Connect, ActReset}, turn(to))
			b.ResetDone(x, nil, b.now)
			b.connected(to, session, 1, took)
			b.taken()
		}
		opened(q, 4, 0)
		if free {
			require.Equal(t, []any{ActJoin}, turn(p))
			continue
		}
		opened(p, 5, 0)
		opened(b.peer(7), 6, 2*timeWait)
		require.Equal(t, []any{ActJoin}, turn(q))
	}
}

// TestFailedSessionIsSuspect: its responder context must get another number.
func TestFailedSessionIsSuspect(t *testing.T) {
	b := newBench(t, 1, nil)
	x := b.attach(b.peer(1), 3)
	b.Posted(x, 2, 2)
	b.Completed(x, 1, true, b.now)
	require.Equal(t, []any{ActAbort, ActLost}, kindsOf(b.taken()))
	b.Completed(x, 1, true, b.now)
	as := b.taken()
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(as))
	require.Equal(t, wire.Broken, as[0].Message.Reason)
}

// TestNumbersOfLongSession: one that takes more than half of all numbers leaves the
// next one those behind it all the same.
func TestNumbersOfLongSession(t *testing.T) {
	b := newBench(t, 1, nil)
	x := b.attach(b.peer(1), 3)
	for range 9 {
		b.Posted(x, 1, 1<<20)
		b.Completed(x, 1, false, b.now)
	}
	last := x.Session.PSN
	b.now += 2 * timeWait
	p := b.peer(2)
	b.Enqueue(p, 1, b.now)
	require.Same(t, p, x.peer)
	require.Less(t, (x.Session.PSN-last)&0xffffff, uint32(200), "it begins at %x behind %x", x.Session.PSN, last)
}

// TestNumbersAfterResume: a session that is taken up goes on with its own numbers, and the next
// new one begins behind the highest of all.
func TestNumbersAfterResume(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q, r := b.peer(1), b.peer(2), b.peer(3)
	x := b.attach(p, 3)
	next := x.Session.PSN
	b.moved(q, 4)
	b.Posted(x, 1, 1000)
	b.Completed(x, 1, false, b.now)
	highest := x.Session.PSN
	b.Enqueue(p, 1, b.now)
	b.Joined(x, nil, b.now)
	require.Equal(t, next, x.Session.PSN)
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, false, b.now)
	b.Enqueue(r, 1, b.now)
	require.Same(t, r, x.peer)
	require.Less(t, (x.Session.PSN-highest-1)&0xffffff, uint32(200))
}

// TestFirstNumber of a queue pair is not easily guessed.
func TestFirstNumber(t *testing.T) {
	c := NewInitiator(1, 1, Limits{Quota: 1}, func() uint32 { return 0xff123456 })
	p := c.AddPeer(PeerAddress{})
	p.alive = true
	c.Enqueue(p, 1, 0)
	require.EqualValues(t, 0x123456+1+0x56, p.ctx.Session.PSN)
}
