package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestCopiesOfAttached: the session of a context, or one that is kept, is not given back
// because the message that gave it comes again.
func TestCopiesOfAttached(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	again := wire.Message{Kind: wire.Attached, Attempt: x.Session.Attempt, Session: 3, QPN: 99, MTU: 3, Wait: 60000}
	require.Empty(t, b.said(p, again))
	require.True(t, x.Attached())
	b.moved(b.peer(2), 4)
	require.Empty(t, b.said(p, again))
	require.EqualValues(t, 3, p.kept.ID)
}

// TestDetachedNamesItsSession: what has another peer, context, attempt or session in it does
// not end the wait for a reply.
func TestDetachedNamesItsSession(t *testing.T) {
	b := newBench(t, 2, func(l *Limits) { l.Keep = false })
	p, q := b.peer(1), b.peer(2)
	b.attach(p, 3)
	require.True(t, b.Dismiss(p, b.now))
	b.taken()
	right := wire.Message{Kind: wire.Detached, Attempt: 1, Session: 3}
	b.said(q, right)
	for _, change := range []func(*wire.Message){
		func(m *wire.Message) { m.Context++ },
		func(m *wire.Message) { m.Attempt++ },
		func(m *wire.Message) { m.Session++ },
	} {
		m := right
		change(&m)
		b.said(p, m)
	}
	require.Len(t, b.disconnects, 1)
	b.said(p, right)
	require.Empty(t, b.disconnects)
	b.said(p, wire.Message{Kind: wire.Connect})
	require.EqualValues(t, 1, b.Stats.Malformed, "no target says that")
}

// TestAliveOfOthers: the reply to a keep-alive is of one session, the context's or the kept one.
func TestAliveOfOthers(t *testing.T) {
	b := newBench(t, 1, nil)
	b.now = time.Hour
	p := b.peer(1)
	x := b.attach(p, 3)
	alive := func(attempt uint32, session uint64, sent time.Duration) {
		b.said(p, wire.Message{Kind: wire.Alive, Attempt: attempt, Session: session, Wait: uint32(sent / time.Millisecond)})
	}
	heard := x.Session.heard
	b.now += 10 * time.Second
	alive(x.Session.Attempt, 33, b.now)
	require.Equal(t, heard, x.Session.heard)
	b.moved(b.peer(2), 4)
	attempt := p.kept.Attempt
	b.now += time.Second
	alive(attempt, 3, b.now-time.Millisecond)
	require.Equal(t, b.now-time.Millisecond, p.kept.heard)
	require.Less(t, x.Session.heard, b.now, "of the other target")
}

// TestOldReplies to probes say nothing of the time that replies take.
func TestOldReplies(t *testing.T) {
	for late, counts := range map[time.Duration]bool{0: true, time.Millisecond: false} {
		b := newBench(t, 1, nil)
		b.now = time.Hour
		p := b.newPeer(1)
		b.Enqueue(p, 1, b.now)
		b.taken()
		sent := b.now - b.ConnectTimeout - late
		require.Equal(t, []any{wire.Connect}, b.said(p, wire.Message{Kind: wire.Alive, Wait: uint32(sent / time.Millisecond)}))
		require.Equal(t, counts, b.rtt.SRTT == b.ConnectTimeout)
	}
}

// TestBusy: a busy target comes again after a pause, for as long as it takes, unless it is not
// wanted any more. The session that was to be replaced is over.
func TestBusy(t *testing.T) {
	busy := func(b *bench, p *Peer, attempt uint32, wait time.Duration) []any {
		return b.said(p, wire.Message{Kind: wire.Busy, Attempt: attempt, Wait: uint32(wait / time.Millisecond)})
	}
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.attach(p, 3)
	b.moved(b.peer(2), 4)
	b.now = p.kept.heard + p.kept.lease()/2 + time.Second // lapsed, and replaced
	x := &b.Contexts[0]
	x.Session.heard = b.now
	b.Enqueue(p, 1, b.now)
	b.ResetDone(x, nil, b.now)
	b.taken()
	require.Empty(t, busy(b, p, x.Session.Attempt, 0), "a copy: the reply to the connect under way will come")
	require.Equal(t, connecting, x.state)
	for n := range 10 {
		attempt := x.Session.Attempt
		require.Empty(t, busy(b, p, attempt, 400*time.Millisecond))
		require.Zero(t, p.kept.ID)
		require.EqualValues(t, n+1, b.Stats.Busy)
		require.Empty(t, busy(b, p, attempt, 400*time.Millisecond), "a copy")
		require.Equal(t, postponed, p.rest)
		require.EqualValues(t, n+1, b.Stats.Busy)
		before := b.now
		require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
		require.GreaterOrEqual(t, b.now-before, 200*time.Millisecond)
		require.Less(t, b.now-before, 600*time.Millisecond)
	}
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()), "it has replied until now, so it is not given up")
	b.Withdraw(p, 1, false)
	busy(b, p, x.Session.Attempt, time.Second)
	require.False(t, p.Waiting())
	require.Equal(t, free, x.state)

	b.Enqueue(p, 0, b.now)
	busy(b, p, x.Session.Attempt, time.Second)
	require.Equal(t, postponed, p.rest, "a session alone is wanted")
}

// TestRefused: what waits for a target that refuses fails, and others are served. A target
// with another generation is connected to, unless the address has one.
func TestRefused(t *testing.T) {
	for _, v := range []struct {
		reason     wire.Reason
		generation uint64
		again      bool
	}{{wire.BadSetup, 0, false}, {wire.StaleTarget, 5, false}, {wire.StaleTarget, 0, true}} {
		b := newBench(t, 1, nil)
		p := b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: 1}, Generation: v.generation})
		p.alive = true
		p.kept = Session{ID: 8, Context: 0, Attempt: 1}
		b.now = time.Second // it has lapsed
		b.Enqueue(p, 1, b.now)
		other := b.peer(2)
		b.Enqueue(other, 1, b.now)
		b.taken()
		attempt := p.ctx.Session.Attempt
		m := wire.Message{Kind: wire.Refused, Reason: v.reason, Attempt: attempt, Epoch: 9, Sender: 1, Peer: p.Number, From: p.at}
		b.Received(&m, b.now)
		as := b.taken()
		require.Zero(t, p.kept.ID)
		if v.again {
			require.Equal(t, []any{wire.Connect}, kindsOf(as))
			require.EqualValues(t, 9, as[0].Message.Epoch)
			require.Equal(t, attempt+1, as[0].Message.Attempt)
			continue
		}
		require.ElementsMatch(t, []any{wire.Detach, ActFail, wire.Connect}, kindsOf(as))
		for _, a := range as {
			if a.Kind == ActFail {
				require.ErrorIs(t, a.Err, ErrRefused)
			} else if a.Message.Kind == wire.Detach {
				require.EqualValues(t, 8, a.Message.Session)
			}
		}
		require.False(t, p.Waiting())
		require.EqualValues(t, 1, p.Stats.Waits)
		require.NotNil(t, other.ctx)
	}
}

// TestRecall: a session that others wait for ends when what its target has is done, and what
// waits for the target has the quota until then.
func TestRecall(t *testing.T) {
	recall := func(b *bench, p *Peer, x *Context) []any {
		return b.said(p, wire.Message{Kind: wire.Recall, Attempt: x.Session.Attempt, Session: 3})
	}
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	require.Empty(t, b.said(p, wire.Message{Kind: wire.Recall, Attempt: x.Session.Attempt}), "of no session")
	require.True(t, x.Attached())
	require.Equal(t, []any{wire.Detach, ActReset}, recall(b, p, x), "at once")

	b = newBench(t, 1, nil)
	p = b.peer(1)
	x = b.attach(p, 3)
	b.Posted(x, 1, 1)
	require.Empty(t, recall(b, p, x))
	require.True(t, x.Attached())
	b.Completed(x, 1, false, b.now)
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(b.taken()))

	b = newBench(t, 1, nil)
	p = b.peer(1)
	x = b.attach(p, 3)
	b.Enqueue(p, 2*b.Quota, b.now)
	require.Empty(t, recall(b, p, x))
	require.Equal(t, b.Quota, b.Room(x, 64))
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, false, b.now)
	require.True(t, x.Attached(), "more waits")
	b.Took(p, b.Quota-1)
	b.Posted(x, b.Quota-1, 1)
	require.Zero(t, b.Room(x, 64))
	b.Completed(x, b.Quota-1, false, b.now)
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(b.taken()), "though nobody waits here")
	require.True(t, p.Waiting())
}

// TestSessionsOfTwoTargets may have the same number.
func TestSessionsOfTwoTargets(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(q, 3)
	b.Posted(x, 1, 1)
	m := wire.Message{Kind: wire.Recall, Attempt: x.Session.Attempt, Session: 3}
	as := b.said(p, m)
	require.Equal(t, []any{wire.Detach}, as, "what gave it was lost")
	require.False(t, x.recalled)
	m.Kind, m.Reason = wire.Refused, wire.StaleSession
	require.Empty(t, b.said(p, m))
	m.Kind = wire.Attached
	require.Empty(t, b.said(p, m), "a copy of what is given back")
	b.said(p, wire.Message{Kind: wire.Detached, Attempt: m.Attempt, Session: 3})
	require.Equal(t, []any{wire.Detach}, b.said(p, m))
	require.True(t, x.Attached())
}

// TestSearchWithoutContext: the service of a target that does not reply to a probe is asked too.
// A target that was restarted may have the number of its queue pair again, with another key.
func TestSearchWithoutContext(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: 7, QKey: 70}, Service: true})
	b.Enqueue(p, 1, b.now)
	require.Equal(t, []any{wire.Probe}, kindsOf(b.taken()))
	require.ElementsMatch(t, []any{wire.Probe, ActLookup}, kindsOf(b.tick()))
	for _, at := range []wire.ControlAddress{{QPN: 7, QKey: 71}, {QPN: 8, QKey: 71}} {
		b.Found(p, at, nil, b.now)
		as := b.taken()
		require.Equal(t, []any{wire.Probe}, kindsOf(as))
		require.Equal(t, at, as[0].To)
	}
	require.Equal(t, []any{wire.Connect}, b.said(p, wire.Message{Kind: wire.Alive}))
	b.Withdraw(p, 1, false)

	gone := b.peer(9)
	require.True(t, b.Remove(gone, b.now))
	b.taken()
	b.Found(gone, wire.ControlAddress{QPN: 10}, nil, b.now)
	require.Empty(t, b.taken())
	require.EqualValues(t, 9, gone.at.QPN)
	require.False(t, b.Knows(gone))
	require.False(t, b.Knows(nil))
	require.False(t, b.Knows(&Peer{Number: uint32(len(b.peers))}))
}
