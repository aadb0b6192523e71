package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// said is a message from where a peer is.
func (b *bench) said(p *Peer, m wire.Message) []any {
	m.Sender, m.Peer, m.From = 1, p.Number, p.at
	b.Received(&m, b.now)
	return kindsOf(b.taken())
}

// TestAliveTells when the keep-alive was sent to which it replies: never an earlier time
// than is known, and none out of reach.
func TestAliveTells(t *testing.T) {
	b := newBench(t, 1, nil)
	b.now = time.Hour
	p := b.peer(1)
	x := b.attach(p, 3)
	at := func(sent time.Duration) time.Duration {
		b.said(p, wire.Message{Kind: wire.Alive, Attempt: x.Session.Attempt, Session: 3, Wait: uint32(sent / time.Millisecond)})
		return x.Session.heard
	}
	b.now += 30 * time.Second
	sent := b.now - time.Second
	require.Equal(t, sent, at(sent))
	require.Equal(t, sent, at(sent-time.Second), "a late copy of an earlier one")
	require.Equal(t, sent, at(b.now+time.Second), "nothing was sent then")
	x.Session.heard = b.now - 2*x.Session.lease()
	before := x.Session.heard
	require.Equal(t, before, at(b.now-x.Session.lease()-time.Second), "the session has lapsed since")
}

// TestKeepAliveIsRepeated before the lease is over, if it has no reply.
func TestKeepAliveIsRepeated(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	end := x.Session.heard + x.Session.lease()
	n := 0
	for b.Next() < end {
		for _, k := range kindsOf(b.tick()) {
			if k == wire.KeepAlive {
				n++
			}
		}
	}
	require.GreaterOrEqual(t, n, 3)
	require.LessOrEqual(t, n, 10)
}

// TestKeepAliveWithReply is sent once in an eighth to three eighths of the lease.
func TestKeepAliveWithReply(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	var sent []time.Duration
	for b.now < 10*time.Minute {
		for _, a := range b.tick() {
			require.Equal(t, wire.KeepAlive, a.Message.Kind)
			sent = append(sent, b.now)
			b.now += time.Millisecond
			require.Empty(t, b.said(p, wire.Message{Kind: wire.Alive, Attempt: x.Session.Attempt, Session: 3, Wait: a.Message.Wait}))
		}
	}
	require.Greater(t, len(sent), 20)
	for n, at := range sent[1:] {
		require.GreaterOrEqual(t, at-sent[n], x.Session.lease()/8)
		require.LessOrEqual(t, at-sent[n], 3*x.Session.lease()/8)
	}
}

// TestLapsedSession: one of which the target has not heard for half of the lease is not
// kept, and one that was kept is not taken up, but replaced.
func TestLapsedSession(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	b.now += x.Session.lease()/2 + time.Second
	b.Enqueue(q, 1, b.now)
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(b.taken()))
	require.Zero(t, p.kept.ID)
	b.ResetDone(x, nil, b.now)
	b.connected(q, 4, 1, 0)
	b.Enqueue(p, 1, b.now)
	b.ResetDone(x, nil, b.now)
	b.connected(p, 5, 1, 2*timeWait)
	require.EqualValues(t, 4, q.kept.ID)
	b.now = q.kept.heard + q.kept.lease()/2 + time.Second
	x.Session.heard = b.now
	b.taken()
	b.Enqueue(q, 1, b.now)
	as := b.taken()
	require.Equal(t, []any{wire.Connect, ActReset}, kindsOf(as))
	require.EqualValues(t, 4, as[0].Message.Session, "the new one replaces it")
}

// TestKeptUntilHalfOfTheLease, to the end.
func TestKeptUntilHalfOfTheLease(t *testing.T) {
	for late, kept := range []uint64{3, 0} {
		b := newBench(t, 1, nil)
		p := b.peer(1)
		x := b.attach(p, 3)
		b.now = x.Session.lease()/2 + time.Duration(late)
		b.Enqueue(b.peer(2), 1, b.now)
		require.Equal(t, kept, p.kept.ID)
	}
}

// TestStaleSession: a session that its target does not know is lost, and one that is
// kept is forgotten.
func TestStaleSession(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	b.Posted(x, 1, 1)
	stale := wire.Message{Kind: wire.Refused, Reason: wire.StaleSession, Attempt: x.Session.Attempt, Session: 3}
	require.Equal(t, []any{ActAbort, ActLost}, b.said(p, stale))
	b.Completed(x, 1, true, b.now)
	b.taken()
	b.ResetDone(x, nil, b.now)
	b.attach(p, 4)
	b.Enqueue(q, 1, b.now)
	require.EqualValues(t, 4, p.kept.ID)
	stale.Session = 4
	b.taken()
	b.said(p, stale)
	require.Zero(t, p.kept.ID)
	require.Zero(t, b.Counted().Kept)
}

// TestRefusedAgain: a target that refuses the generation which it has named itself is
// not asked for ever.
func TestRefusedAgain(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, b.now)
	b.taken()
	refuse := func() []any {
		return b.said(p, wire.Message{Kind: wire.Refused, Reason: wire.StaleTarget, Attempt: p.ctx.Session.Attempt, Epoch: 9})
	}
	require.Equal(t, []any{wire.Connect}, refuse())
	require.Equal(t, []any{ActFail}, refuse())
}

// TestRecallIsNotPutOff by its repetitions: the bound counts from the first.
func TestRecallIsNotPutOff(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	b.Posted(x, 1, 1)
	begun := b.now
	for x.state == attached {
		require.Less(t, b.now, begun+2*b.Hold)
		b.said(p, wire.Message{Kind: wire.Recall, Attempt: x.Session.Attempt, Session: 3})
		b.now += b.Hold / 2
		b.Tick(b.now)
	}
	b.taken()
	b.Completed(x, 1, false, b.now)
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(b.taken()))
}

// TestNoReceiveAgain: the pauses grow while a target has no receive, and begin anew
// after a request that found one.
func TestNoReceiveAgain(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	pause := func(session uint64) time.Duration {
		for p.ctx == nil {
			b.tick()
		}
		x := p.ctx
		b.answer(p, session)
		b.Joined(x, nil, b.now)
		b.Took(p, p.Pending())
		b.Posted(x, 2, 2)
		b.NotReady(x, 1, b.now)
		b.NotReady(x, 1, b.now)
		b.ResetDone(x, nil, b.now)
		b.taken()
		return p.timer - b.now
	}
	b.Enqueue(p, 1, b.now)
	first := pause(3)
	require.Equal(t, 2*first, pause(4))
	require.Equal(t, 4*first, pause(5))
	for n := range uint64(20) {
		require.LessOrEqual(t, pause(10+n), 128*time.Millisecond)
	}
	for p.ctx == nil {
		b.tick()
	}
	b.connected(p, 50, 1, 0)
	b.Posted(p.ctx, 1, 1)
	x := p.ctx
	b.NotReady(x, 1, b.now)
	require.Equal(t, first, p.timer-b.now)
	// Its turn at the target, of which a late message tells, changes nothing.
	b.ResetDone(x, nil, b.now)
	b.taken()
	require.Empty(t, b.said(p, wire.Message{Kind: wire.Busy}))
	require.Equal(t, postponed, p.rest)
}

// TestTurn: a target that was busy and has room now is connected to at once.
func TestTurn(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Enqueue(p, 1, b.now)
	b.taken()
	require.Empty(t, b.said(p, wire.Message{Kind: wire.Busy, Attempt: p.ctx.Session.Attempt, Wait: 1000}))
	require.Nil(t, p.ctx)
	require.Equal(t, []any{wire.Connect}, b.said(p, wire.Message{Kind: wire.Busy}))
}

// TestBrokenAreTold: what ends with anything that may be under way is called broken, so
// that its responder context gets another number.
func TestBrokenAreTold(t *testing.T) {
	b := newBench(t, 2, nil)
	p, q := b.peer(1), b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.answer(p, 3)
	b.taken()
	b.Joined(p.ctx, errors.New("not connected"), b.now)
	told := func() (reasons []wire.Reason) {
		for _, a := range b.taken() {
			if a.Kind == ActSend && a.Message.Kind == wire.Detach {
				reasons = append(reasons, a.Message.Reason)
			}
		}
		return reasons
	}
	require.Equal(t, []wire.Reason{wire.Broken}, told())
	require.EqualValues(t, 1, p.Stats.Waits, "it has failed, and does not wait again")
	b.ResetDone(&b.Contexts[0], errors.New("no queue pair"), b.now)
	x := b.attach(q, 4)
	b.Posted(x, 1, 1)
	b.Part()
	require.Equal(t, []wire.Reason{wire.Broken}, told())
	// A context that is lost while its reply is under way.
	b = newBench(t, 1, nil)
	p, q = b.peer(1), b.peer(2)
	b.attach(p, 3)
	b.Enqueue(q, 1, b.now)
	b.taken()
	b.ResetDone(q.ctx, errors.New("no queue pair"), b.now)
	require.Contains(t, told(), wire.Broken)
}

// TestWanted: a target that is only to be attached is not removed meanwhile, and what it
// was asked long ago does not count when that is taken back.
func TestWanted(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(other, 1, b.now)
	b.Enqueue(p, 0, b.now)
	require.False(t, b.Remove(p, b.now))
	b.Withdraw(p, 0, true)
	p.alive = false
	b.Enqueue(p, 1, b.now)
	require.Equal(t, probed, p.rest)
	b.Withdraw(p, 1, false)
	b.now += 2 * b.ConnectTimeout
	b.Enqueue(p, 1, b.now)
	require.Greater(t, p.timer, b.now)
	require.True(t, b.Remove(b.peer(9), b.now))
}

// TestQuotaAfterAll: a target that has used up its quota and stays, since the others have
// found another context, has all of it again.
func TestQuotaAfterAll(t *testing.T) {
	b := newBench(t, 2, nil)
	p, other, last := b.peer(1), b.peer(2), b.peer(4)
	x := b.attach(p, 3)
	y := b.attach(b.peer(3), 4)
	b.Posted(y, 1, 1)
	b.Posted(x, 1, 1)
	b.Enqueue(other, 1, b.now)
	b.Posted(x, b.Quota, b.Quota)
	b.Completed(y, 1, false, b.now)
	b.Completed(x, 1+b.Quota, false, b.now)
	require.Equal(t, attached, x.state)
	b.Posted(x, 1, 1)
	b.Enqueue(last, 1, b.now)
	require.Equal(t, b.Quota, b.Allow(x, 100, 100))
}

// TestStuckIsNobodysHome: a target that comes to wait for a context that makes no progress
// goes elsewhere at once.
func TestStuckIsNobodysHome(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	b.moved(b.peer(2), 4)
	require.Same(t, x, b.home(p, b.now))
	x.stuck = true
	require.Nil(t, b.home(p, b.now))
}

// TestLostSession: a target that waits for the context of a session that is over waits for any.
func TestLostSession(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	b.attach(p, 3)
	x := b.moved(q, 4)
	b.Posted(x, 1, 1)
	b.Enqueue(p, 1, b.now)
	require.True(t, p.line == &x.line)
	b.said(p, wire.Message{Kind: wire.Recall, Attempt: p.kept.Attempt, Session: 3})
	require.True(t, p.line == &b.general)
}

// TestWhySessionsAreLost: the action for a lost session says why, unless a request failed,
// of which its driver knows more; one without a receive at the target is not lost.
func TestWhySessionsAreLost(t *testing.T) {
	lost := func(end func(b *bench, p *Peer, x *Context)) (out []error) {
		b := newBench(t, 1, nil)
		p := b.peer(1)
		x := b.attach(p, 3)
		b.Posted(x, 2, 2)
		b.taken()
		end(b, p, x)
		for _, a := range b.taken() {
			if a.Kind == ActLost {
				require.Same(t, p, a.Peer)
				require.Same(t, x, a.Context)
				out = append(out, a.Err)
			}
		}
		return out
	}
	require.Equal(t, []error{ErrAborted}, lost(func(b *bench, p *Peer, x *Context) {
		b.Abort(p)
		b.Abort(p)
		b.Completed(x, 2, true, b.now)
	}))
	require.Equal(t, []error{ErrStale}, lost(func(b *bench, p *Peer, x *Context) {
		b.Received(&wire.Message{Kind: wire.Refused, Reason: wire.StaleSession, Sender: 1, Attempt: x.Session.Attempt, Peer: p.Number, Session: 3, From: p.at}, b.now)
		b.Completed(x, 2, true, b.now)
	}))
	require.Equal(t, []error{nil}, lost(func(b *bench, _ *Peer, x *Context) {
		b.Completed(x, 1, true, b.now)
		b.Completed(x, 1, true, b.now)
	}))
	require.Empty(t, lost(func(b *bench, _ *Peer, x *Context) { b.NotReady(x, 2, b.now) }))
	require.Empty(t, lost(func(b *bench, p *Peer, x *Context) {
		b.Completed(x, 2, false, b.now)
		require.True(t, b.Dismiss(p, b.now))
	}))
}
