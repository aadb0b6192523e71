package session

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

const timeWait = time.Second

// bench is a machine by itself.
type bench struct {
	*Initiator
	t   *testing.T
	now time.Duration
}

func newBench(t *testing.T, contexts int, change func(*Limits)) *bench {
	l := Limits{Quota: 4, Hold: 100 * time.Millisecond, MaxWait: time.Second, Retransmit: 10 * time.Millisecond, ConnectTimeout: time.Second,
		Keep: true, TimeWait: timeWait}
	if change != nil {
		change(&l)
	}
	return &bench{Initiator: NewInitiator(1, contexts, l, rand.Uint32), t: t}
}

// peer is a target that has replied before.
func (b *bench) peer(qpn uint32) *Peer {
	p := b.newPeer(qpn)
	p.alive = true
	return p
}

// newPeer returns a peer of which nothing was ever heard.
func (b *bench) newPeer(qpn uint32) *Peer {
	return b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: qpn, GID: wire.GID{15: byte(qpn)}}, Key: 7})
}

// taken are the actions since it was asked last.
func (b *bench) taken() (out []Action) {
	out, b.Actions = b.Actions, nil
	return out
}

func kindsOf(as []Action) (out []any) {
	for _, a := range as {
		if a.Kind == ActSend {
			out = append(out, a.Message.Kind)
		} else {
			out = append(out, a.Kind)
		}
	}
	return out
}

func (b *bench) tick() []Action {
	b.now = b.Next()
	b.Tick(b.now)
	return b.taken()
}

// until lets time pass until there is such an action.
func (b *bench) until(kind ActionKind) {
	b.t.Helper()
	for range 100 {
		for _, a := range b.tick() {
			if a.Kind == kind {
				return
			}
		}
	}
	b.t.Fatalf("no action %d", kind)
}

// answer sends the reply to the last connect of a peer.
func (b *bench) answer(p *Peer, session uint64) {
	x := p.ctx
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Context: uint32(x.Index), Attempt: x.Session.Attempt, Peer: p.Number, Session: session, QPN: 99, MTU: 3, Wait: 60000, Epoch: 5, From: p.at}, b.now)
}

// attach brings a peer to a context.
func (b *bench) attach(p *Peer, session uint64) *Context {
	b.t.Helper()
	b.Enqueue(p, 1, b.now)
	require.NotNil(b.t, p.ctx)
	b.connected(p, session, 1, 0)
	b.taken()
	return p.ctx
}

// connected sends the reply to the last connect of a peer, and carries out the request that
// waits for it, which has so many packets and takes some time.
func (b *bench) connected(p *Peer, session uint64, packets int, took time.Duration) {
	b.answer(p, session)
	b.Joined(p.ctx, nil, b.now)
	b.Took(p, 1)
	b.Posted(p.ctx, 1, packets)
	b.now += took
	b.Completed(p.ctx, 1, false, b.now)
}

// TestGivesWay: a silent target leaves its context after one retransmission that
// stays unanswered, is probed without one, and comes back with its first sign.
func TestGivesWay(t *testing.T) {
	b := newBench(t, 1, nil)
	dead, live := b.peer(7), b.peer(8)
	b.Enqueue(dead, 1, 0)
	b.Enqueue(live, 1, 0)
	require.Equal(t, []any{wire.Connect}, kindsOf(b.taken()))
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.NotNil(t, dead.ctx)
	require.Equal(t, []any{wire.Detach, wire.Probe, wire.Connect}, kindsOf(b.tick()))
	require.Nil(t, dead.ctx)
	require.NotNil(t, live.ctx)
	require.Less(t, b.now, 50*time.Millisecond)
	require.EqualValues(t, 1, b.Stats.GaveWay)
	b.answer(live, 3)
	b.Joined(live.ctx, nil, b.now)
	b.taken()
	b.Received(&wire.Message{Kind: wire.Alive, Sender: 1, Peer: dead.Number, From: dead.at}, b.now)
	require.True(t, dead.Waiting())
	require.True(t, dead.alive)
	// One that stays silent fails in time, and holds no context meanwhile.
	b.Withdraw(dead, 1, false)
	dead.alive = false
	b.Enqueue(dead, 1, b.now)
	begin := b.now
	var failed []Action
	for len(failed) == 0 && b.now < begin+10*time.Second {
		for _, a := range b.tick() {
			if a.Kind == ActFail {
				failed = append(failed, a)
			}
		}
		require.Nil(t, dead.ctx)
	}
	require.ErrorIs(t, failed[0].Err, ErrUnreachable)
	require.LessOrEqual(t, b.now-begin, b.ConnectTimeout)
}

// TestDismissedSession: what is left with Dismiss is joined again without a message, by
// a queue pair that is ready.
func TestDismissedSession(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(7)
	x := b.attach(p, 3)
	next := x.Session.PSN
	require.True(t, b.Dismiss(p, b.now))
	require.Equal(t, []any{ActReset}, kindsOf(b.taken()))
	b.ResetDone(x, nil, b.now)
	require.Empty(t, b.taken())
	b.Enqueue(p, 1, b.now)
	as := b.taken()
	require.Equal(t, []any{ActJoin}, kindsOf(as))
	require.False(t, as[0].Again, "it is ready")
	require.Equal(t, next, x.Session.PSN)
	require.EqualValues(t, 99, as[0].Message.QPN)
	// The target may want it back.
	b.Joined(x, nil, b.now)
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, false, b.now)
	require.True(t, b.Dismiss(p, b.now))
	b.taken()
	b.ResetDone(x, nil, b.now)
	b.Received(&wire.Message{Kind: wire.Recall, Sender: 1, Attempt: p.kept.Attempt, Peer: p.Number, Session: 3, From: p.at}, b.now)
	as = b.taken()
	require.Equal(t, []any{wire.Detach}, kindsOf(as))
	require.EqualValues(t, 3, as[0].Message.Session)
	require.Zero(t, p.kept.ID)
}

// TestLargestBacklogFirst, but no target waits for longer than the bound.
func TestLargestBacklogFirst(t *testing.T) {
	b := newBench(t, 1, nil)
	busy := b.peer(1)
	x := b.attach(busy, 3)
	b.Posted(x, 1, 1)
	small, large := b.peer(2), b.peer(3)
	b.Enqueue(small, 1, b.now)
	b.now += time.Millisecond
	b.Enqueue(large, 3, b.now)
	b.Completed(x, 1, false, b.now)
	require.Same(t, large, x.peer)
	b.answer(large, 4)
	b.Joined(x, nil, b.now)
	b.Took(large, 3)
	b.Posted(x, 3, 3)
	another := b.peer(4)
	b.now += b.MaxWait
	b.Enqueue(another, 9, b.now)
	b.Completed(x, 3, false, b.now)
	require.Same(t, small, x.peer, "it has waited for too long")
}

// TestFindsNoReceive: the context goes to others, and the target comes again.
func TestFindsNoReceive(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(7), b.peer(8)
	x := b.attach(p, 3)
	b.Posted(x, 2, 2)
	b.Enqueue(other, 1, b.now)
	b.NotReady(x, 1, b.now)
	b.NotReady(x, 1, b.now)
	require.Equal(t, 2, p.Pending())
	require.EqualValues(t, 1, b.Stats.NotReady)
	as := kindsOf(b.taken())
	require.Contains(t, as, any(ActAbort))
	require.NotContains(t, as, any(ActLost), "nothing is lost")
	b.ResetDone(x, nil, b.now)
	require.Same(t, other, x.peer)
	require.True(t, p.Waiting())
	require.Equal(t, postponed, p.rest)
	require.Greater(t, p.timer, b.now)
	require.Less(t, p.timer, b.now+5*time.Millisecond)
}

// TestForgottenPeer: its number is free once the target has taken leave too, and
// a session that it opens late is closed, with the right key.
func TestForgottenPeer(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(7)
	b.Enqueue(p, 1, 0)
	require.False(t, b.Remove(p, 0))
	b.answer(p, 9)
	x := p.ctx
	b.Joined(x, nil, 0)
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	require.False(t, b.Remove(p, 0))
	b.Completed(x, 1, false, 0)
	b.taken()
	require.True(t, b.Remove(p, 0))
	require.False(t, b.Knows(p))
	left := b.taken()
	require.Equal(t, []any{wire.Detach, ActReset}, kindsOf(left))
	require.Equal(t, wire.NoReason, left[0].Message.Reason, "nothing is under way")
	require.EqualValues(t, 1, b.peerNumber(), "the disconnect is under way")
	b.Received(&wire.Message{Kind: wire.Detached, Sender: 1, Attempt: 1, Session: 9, From: p.at}, 0)
	require.Empty(t, b.disconnects)
	require.EqualValues(t, 0, b.peerNumber())
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 1, Session: 10, From: p.at}, 0)
	as := b.taken()
	require.Equal(t, []any{wire.Detach}, kindsOf(as))
	require.Equal(t, p.at, as[0].To)
	require.EqualValues(t, 10, as[0].Message.Session)
	require.EqualValues(t, 7, as[0].Message.Key)
}

// TestStaleAttachedIsDeclined until the target says that it knows.
func TestStaleAttachedIsDeclined(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(7)
	b.attach(p, 3)
	late := &wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 44, Peer: p.Number, Session: 8, From: p.at}
	b.Received(late, b.now)
	b.Received(late, b.now)
	require.Equal(t, []any{wire.Detach}, kindsOf(b.taken()))
	require.Contains(t, kindsOf(b.tick()), any(wire.Detach))
}

// TestSearch: the service is asked after two packets without a reply, one
// question at a time, and the connect goes on at the place that it names.
func TestSearch(t *testing.T) {
	b := newBench(t, 1, func(l *Limits) { l.Hold = time.Hour; l.Retransmit = time.Millisecond })
	p := b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: 7, QKey: 70}, Service: true})
	p.alive = true
	b.Enqueue(p, 1, 0)
	psn := p.ctx.Session.PSN
	require.Equal(t, []any{wire.Connect}, kindsOf(b.taken()))
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Connect, ActLookup}, kindsOf(b.tick()))
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()), "the question is under way")
	b.Found(p, wire.ControlAddress{}, errors.New("no reply"), b.now)
	require.Equal(t, []any{wire.Connect, ActLookup}, kindsOf(b.tick()))
	b.Found(p, wire.ControlAddress{QPN: 7, QKey: 70}, nil, b.now)
	require.Empty(t, b.taken(), "it is where it was")
	require.Equal(t, []any{wire.Connect, ActLookup}, kindsOf(b.tick()))
	b.Found(p, wire.ControlAddress{QPN: 8, QKey: 80}, nil, b.now)
	as := b.taken()
	require.Len(t, as, 1)
	require.Equal(t, wire.ControlAddress{QPN: 8, QKey: 80}, as[0].To)
	require.EqualValues(t, 2, as[0].Message.Attempt)
	require.NotEqual(t, psn, as[0].Message.PSN)
	require.Equal(t, []any{wire.Connect}, kindsOf(b.tick()), "no question after one packet")
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 1, Session: 5, From: wire.ControlAddress{QPN: 7}}, b.now)
	require.Equal(t, connecting, p.ctx.state, "the old place is out")
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 2, Session: 6, Epoch: 3, From: wire.ControlAddress{QPN: 8}}, b.now)
	require.Equal(t, joining, p.ctx.state)
	require.EqualValues(t, 3, b.Stats.Lookups)
}

// TestContextsThatCannotBeRepaired: requests fail instead of waiting for ever, and
// go through when a context works again.
func TestContextsThatCannotBeRepaired(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(7), b.peer(8)
	x := b.attach(p, 3)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, true, b.now)
	b.Enqueue(q, 1, b.now)
	bad := errors.New("no queue pair")
	b.ResetDone(x, bad, b.now)
	for range lastRepair - 1 {
		require.NotContains(t, kindsOf(b.taken()), any(ActFail))
		b.until(ActReset)
		b.ResetDone(x, bad, b.now)
	}
	require.Contains(t, kindsOf(b.taken()), any(ActFail))
	b.Enqueue(q, 1, b.now)
	require.Contains(t, kindsOf(b.taken()), any(ActFail))
	b.until(ActReset)
	b.ResetDone(x, nil, b.now)
	b.Enqueue(q, 1, b.now)
	require.Equal(t, []any{wire.Connect}, kindsOf(b.taken()))
}

// TestWithdraw: what is taken back waits for nothing.
func TestWithdraw(t *testing.T) {
	b := newBench(t, 1, nil)
	b.Enqueue(b.peer(1), 1, 0)
	p := b.peer(2)
	b.Enqueue(p, 2, 0)
	b.Withdraw(p, 1, false)
	require.True(t, p.Waiting())
	b.Withdraw(p, 1, false)
	require.False(t, p.Waiting())
	b.Enqueue(p, 0, 0)
	require.True(t, p.Waiting())
	b.Withdraw(p, 0, true)
	require.False(t, p.Waiting())
	require.Zero(t, b.waiting)
	for _, p := range []*Peer{p, b.newPeer(3)} { // in line, or asked whether it is there
		b.Enqueue(p, 0, 0)
		b.Enqueue(p, 1, 0)
		b.Withdraw(p, 1, false)
		require.True(t, p.Waiting(), "a session is wanted still")
		b.Enqueue(p, 1, 0)
		b.Withdraw(p, 0, true)
		require.True(t, p.Waiting(), "a request waits still")
		b.Withdraw(p, 1, false)
		require.False(t, p.Waiting())
	}
}

// TestStuck: a target that waits for a context that makes no progress with its own target is
// served by another one, also if it made some before.
func TestStuck(t *testing.T) {
	for name, progress := range map[string]int{"from the start": 0, "after progress": 1} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2, nil)
			p, q, r := b.peer(1), b.peer(2), b.peer(3)
			x := b.attach(p, 3)
			y := b.attach(q, 4)
			require.NotSame(t, x, y)
			b.Posted(y, 1, 1)
			b.Enqueue(r, 1, b.now) // p makes room, and is kept
			b.answer(r, 5)
			b.ResetDone(x, nil, b.now)
			b.Joined(x, nil, b.now)
			b.Took(r, 1)
			b.Posted(x, 1+progress, 1) // and one never ends
			b.Completed(x, progress, false, b.now)
			b.Enqueue(p, 1, b.now)
			b.Completed(y, 1, false, b.now)
			require.Nil(t, p.ctx, "its session is the other context's")
			b.taken()
			for p.ctx == nil && b.now < time.Second {
				b.tick()
			}
			require.Same(t, y, p.ctx)
			require.LessOrEqual(t, b.now, time.Duration(2+progress)*stuckAfter*b.Hold)
		})
	}
}

// TestDisconnectsEnd: a target that does not answer is told several times that its session
// is over, and then no more.
func TestDisconnectsEnd(t *testing.T) {
	b := newBench(t, 1, func(l *Limits) { l.Keep = false })
	p := b.peer(1)
	b.attach(p, 3)
	require.True(t, b.Dismiss(p, b.now))
	b.ResetDone(&b.Contexts[0], nil, b.now)
	var told []time.Duration
	for range 100 {
		for _, kind := range kindsOf(b.taken()) {
			if kind == wire.Detach {
				told = append(told, b.now/time.Millisecond)
			}
		}
		if b.Next() == Never {
			break
		}
		b.now = b.Next()
		b.Tick(b.now)
	}
	require.Equal(t, Never, b.Next())
	require.Empty(t, b.disconnects)
	require.Equal(t, []time.Duration{0, 10, 30, 70, 150, 310, 630, 1270, 2550}, told)
	require.EqualValues(t, 8, b.Stats.Retransmits)
}

// TestAdmit: no request is posted while others wait for the same target.
func TestAdmit(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	require.Same(t, x, b.Admit(p))
	b.Enqueue(p, 1, b.now)
	require.Nil(t, b.Admit(p))
	require.Equal(t, 1, b.Room(x, 5))
	b.Took(p, 1)
	require.Same(t, x, b.Admit(p))
	b.Enqueue(b.peer(2), 1, b.now) // a target waits: the session goes
	require.Nil(t, b.Admit(p))
}

// TestQuota bounds what goes to a target at once while others wait, whether it
// waited or is posted at once, and no more than that.
func TestQuota(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	require.Equal(t, 10, b.Allow(x, 10, 64), "nobody waits")
	b.Posted(x, 1, 1)
	b.Enqueue(q, 1, b.now)
	b.Enqueue(p, 10, b.now)
	require.Equal(t, 4, b.Room(x, 64))
	require.Equal(t, 3, b.Room(x, 3))
	b.Took(p, 3)
	b.Posted(x, 3, 3)
	require.Equal(t, 1, b.Room(x, 64))
	b.Took(p, 1)
	b.Posted(x, 1, 1)
	require.Zero(t, b.Room(x, 64))
	b.Completed(x, 5, false, b.now)
	require.Same(t, q, x.peer)
	require.True(t, p.Waiting())
}

// TestRequestsAreSignsOfLife: with targets to which packets count, a session with
// requests that succeed every few seconds is kept for many leases, and nothing is sent.
// Without requests, or where packets do not count, there are keep-alives.
func TestRequestsAreSignsOfLife(t *testing.T) {
	const lease = time.Minute
	for _, v := range []struct {
		name    string
		counts  uint64
		pending int
		says    bool // keep-alives
	}{{"packets count", wire.PacketsCount, 1, false}, {"packets do not count", 0, 1, true}, {"no requests", wire.PacketsCount, 0, true}} {
		b := newBench(t, 1, nil)
		peers := []*Peer{b.peer(1), b.peer(2), b.peer(3)}
		for k, p := range peers {
			b.Enqueue(p, 1, b.now)
			x := p.ctx
			b.Received(&wire.Message{Kind: wire.Attached, Key: v.counts, Sender: 1, Context: 0, Attempt: x.Session.Attempt, Peer: p.Number, Session: uint64(k + 500),
				QPN: 99, MTU: 3, Wait: uint32(lease / time.Millisecond), Epoch: 5, From: p.at}, b.now)
			if x.resetting {
				b.ResetDone(x, nil, b.now)
			}
			b.now += time.Second
			b.Joined(x, nil, b.now)
			b.Took(p, 1)
			b.Posted(x, 1, 1)
			b.Completed(x, 1, false, b.now)
			require.Equal(t, v.counts != 0, x.Session.heard == b.now, v.name)
		}
		b.taken()
		said := 0
		pass := func(d time.Duration) {
			end := b.now + d
			for b.Next() < end {
				b.now = max(b.now, b.Next())
				b.Tick(b.now)
				for _, a := range b.taken() {
					if a.Kind != ActSend {
						continue
					}
					require.Equal(t, wire.KeepAlive, a.Message.Kind, v.name)
					said++
					m := a.Message
					m.Kind, m.From = wire.Alive, a.To
					b.Received(&m, b.now)
				}
			}
			b.now = end
		}
		for range 40 {
			for _, p := range peers { // each every 27 s, for as long as 9 s
				b.Enqueue(p, v.pending, b.now)
				x := p.ctx
				b.Joined(x, nil, b.now)
				b.Took(p, v.pending)
				b.Posted(x, v.pending, v.pending)
				b.taken()
				pass(time.Second)
				b.Completed(x, v.pending, false, b.now)
				pass(8 * time.Second)
			}
		}
		require.EqualValues(t, 120, b.Stats.Resumes, v.name)
		if v.says {
			require.Greater(t, said, 20, v.name)
		} else {
			require.Zero(t, said, v.name)
		}
	}
}

// TestAttachWhileDraining: an Attach is over, too, when the session that was about to
// go stays after all. The target may then be left.
func TestAttachWhileDraining(t *testing.T) {
	b := newBench(t, 2, nil)
	p, other := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	y := b.attach(b.peer(3), 4)
	b.Posted(y, 1, 1)
	b.Posted(x, 1, 1)
	b.Enqueue(other, 1, b.now)
	b.Posted(x, b.Quota, b.Quota)
	require.Equal(t, draining, x.state)
	b.Enqueue(p, 0, b.now)
	b.Completed(y, 1, false, b.now)
	require.NotNil(t, other.ctx, "by the other context")
	b.taken()
	b.Completed(x, 1+b.Quota, false, b.now)
	require.Equal(t, attached, x.state)
	require.Contains(t, kindsOf(b.taken()), any(ActReady))
	require.True(t, b.Dismiss(p, b.now), "nobody wants it any more")
}

// TestPart sends to all targets that may have a session, those that have not replied
// too: by the attempt alone.
func TestPart(t *testing.T) {
	b := newBench(t, 3, nil)
	b.attach(b.peer(1), 3)
	kept := b.peer(2)
	x := b.attach(kept, 4)
	b.Enqueue(b.peer(3), 1, b.now)
	require.True(t, b.Dismiss(kept, b.now))
	b.taken()
	b.Part()
	type said struct {
		kind             wire.Kind
		session          uint64
		context, attempt uint32
	}
	var got []said
	for _, a := range b.taken() {
		m := a.Message
		got = append(got, said{m.Kind, m.Session, m.Context, m.Attempt})
	}
	require.ElementsMatch(t, []said{{wire.Detach, 3, 0, 1}, {wire.Detach, 4, uint32(x.Index), 1}, {wire.Detach, 0, 2, 1}}, got)
}

// TestFirstTryEndsWithItsContext: what a target did not answer counts from its first
// connect packet of those that were sent in a row, not from one long ago.
func TestFirstTryEndsWithItsContext(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	x := b.attach(p, 3)
	b.Enqueue(q, 1, b.now)
	require.True(t, x.resetting)
	b.ResetDone(x, errors.New("no queue pair"), b.now)
	b.Withdraw(q, 1, false)
	b.until(ActReset)
	b.ResetDone(x, nil, b.now)
	b.now += 2 * b.ConnectTimeout
	b.Enqueue(q, 1, b.now)
	require.Equal(t, []any{wire.Connect}, kindsOf(b.taken()))
	b.Tick(b.now + b.Retransmit)
	as := kindsOf(b.taken())
	require.Contains(t, as, any(wire.Connect))
	require.NotContains(t, as, any(ActFail), "after one packet")
}

// TestRemovedPeerElsewhere: the reply to what comes for a peer that was removed has its
// access key, and so goes only where the peer was. Other targets do not learn it.
func TestRemovedPeerElsewhere(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(7), b.peer(8)
	require.True(t, b.Remove(p, 0))
	m := wire.Message{Kind: wire.Attached, Sender: 1, Attempt: 1, Peer: p.Number, Session: 10}
	for n, from := range []wire.ControlAddress{other.at, {GID: other.at.GID, QPN: p.at.QPN}, {GID: p.at.GID, QPN: other.at.QPN}} {
		m.From = from
		b.Received(&m, 0)
		require.Empty(t, b.taken())
		require.EqualValues(t, n+1, b.Stats.Malformed)
	}
	m.From = p.at
	b.Received(&m, 0)
	require.Equal(t, []any{wire.Detach}, kindsOf(b.taken()))
}

// TestReusedNumber: a session that a target gives late, to a peer that was removed, is
// given back with that one's key, though another target has its number.
func TestReusedNumber(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(7)
	require.True(t, b.Remove(p, 0))
	q := b.AddPeer(PeerAddress{At: wire.ControlAddress{QPN: 8, GID: wire.GID{15: 8}}, Key: 99})
	require.Equal(t, p.Number, q.Number)
	for n, kind := range []wire.Kind{wire.Attached, wire.Recall} {
		session := uint64(10 + n)
		b.Received(&wire.Message{Kind: kind, Sender: 1, Attempt: 1, Peer: p.Number, Session: session, From: p.at}, b.now)
		as := append(b.taken(), b.tick()...)
		require.Equal(t, []any{wire.Detach, wire.Detach}, kindsOf(as)[:2], "until it is answered")
		for _, a := range as {
			require.Equal(t, p.at, a.To)
			require.EqualValues(t, 7, a.Message.Key)
		}
		require.Equal(t, session, as[0].Message.Session)
		b.Received(&wire.Message{Kind: wire.Detached, Sender: 1, Attempt: 1, Peer: p.Number, Session: session, From: p.at}, b.now)
		require.Empty(t, b.disconnects)
	}
	require.Zero(t, b.Stats.Malformed)
}
