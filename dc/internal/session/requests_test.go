package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestLeastRecentlyUsed: a target that waits gets the empty context that was used longest ago,
// by a request or since it was connected, and before that one without a target.
func TestLeastRecentlyUsed(t *testing.T) {
	for used := range 3 {
		b := newBench(t, 2, nil)
		peers := []*Peer{b.peer(1), b.peer(2)}
		xs := []*Context{b.attach(peers[0], 3), b.attach(peers[1], 4)}
		want := xs[0] // connected before the other one
		if used < 2 {
			b.Posted(xs[used], 1, 1)
			b.Completed(xs[used], 1, false, b.now)
			want = xs[1-used]
		}
		r := b.peer(3)
		b.Enqueue(r, 1, b.now)
		require.Same(t, want, r.ctx)
	}
	b := newBench(t, 2, nil)
	peers := []*Peer{b.peer(1), b.peer(2)}
	xs := []*Context{b.attach(peers[0], 3), b.attach(peers[1], 4)}
	b.Moved(b.now)
	for _, k := range []int{1, 0} { // connected in another order
		b.Enqueue(peers[k], 0, b.now)
		b.Joined(xs[k], nil, b.now)
	}
	r := b.peer(3)
	b.Enqueue(r, 1, b.now)
	require.Same(t, xs[1], r.ctx)

	for first := range 2 { // comes back, and the other one does not
		b := newBench(t, 2, nil)
		peers := []*Peer{b.peer(1), b.peer(2)}
		xs := []*Context{b.attach(peers[0], 3), b.attach(peers[1], 4)}
		b.Moved(b.now)
		b.Enqueue(peers[first], 1, b.now)
		b.Joined(xs[first], nil, b.now)
		b.Took(peers[first], 1)
		r := b.peer(3)
		b.Enqueue(r, 1, b.now)
		require.Same(t, xs[1-first], r.ctx)
		require.Same(t, peers[first], xs[first].peer)
	}
}

// TestReadyFirst: a context that is ready is better than one that has to be reset.
func TestReadyFirst(t *testing.T) {
	b := newBench(t, 2, nil)
	x := b.attach(b.peer(1), 3)
	b.Moved(b.now)
	require.True(t, x.dirty)
	p := b.peer(2)
	b.Enqueue(p, 1, b.now)
	require.Same(t, &b.Contexts[1], p.ctx)
}

// TestBacklogInLine: requests that come or are taken back while a target waits change its turn.
func TestBacklogInLine(t *testing.T) {
	for name, v := range map[string]struct {
		change func(b *bench, p, q *Peer)
		first  int
	}{
		"as they came": {func(*bench, *Peer, *Peer) {}, 0},
		"more":         {func(b *bench, _, q *Peer) { b.Enqueue(q, 9, b.now) }, 1},
		"fewer":        {func(b *bench, p, _ *Peer) { b.Withdraw(p, 4, false) }, 1},
	} {
		b := newBench(t, 1, nil)
		x := b.attach(b.peer(1), 3)
		b.Posted(x, 1, 1)
		waits := []*Peer{b.peer(2), b.peer(3)}
		b.Enqueue(waits[0], 5, b.now)
		b.Enqueue(waits[1], 3, b.now)
		v.change(b, waits[0], waits[1])
		b.Completed(x, 1, false, b.now)
		require.Same(t, waits[v.first], x.peer, name)
	}
}

// TestAttachOfAttached has what it asks for.
func TestAttachOfAttached(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	require.Zero(t, b.Room(&b.Contexts[0], 5), "nothing waits")
	b.Enqueue(p, 0, b.now)
	as := b.taken()
	require.Equal(t, []any{ActReady}, kindsOf(as))
	require.True(t, as[0].Peer == p && as[0].Context == x)
	require.True(t, b.Dismiss(p, b.now))
	require.Zero(t, b.Room(x, 5), "no target")
	require.Zero(t, b.Allow(x, 5, 5))
}

// TestLive: a context has a session from when it is connected until all requests have ended.
func TestLive(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := &b.Contexts[0]
	step := func(live bool, do func()) {
		t.Helper()
		do()
		require.Equal(t, live, x.Live())
		require.Equal(t, live, b.Counted().Live == 1)
	}
	step(false, func() { b.Enqueue(p, 1, b.now) })
	step(false, func() { b.answer(p, 3) })
	step(true, func() { b.Joined(x, nil, b.now) })
	b.Took(p, 1)
	step(true, func() { b.Posted(x, b.Quota, 1) })
	b.Enqueue(b.peer(2), 1, b.now)
	step(true, func() { b.Posted(x, b.Quota, 1) })
	require.Equal(t, draining, x.state)
	step(true, func() { b.Completed(x, 1, true, b.now) })
	step(false, func() { b.Completed(x, 2*b.Quota-1, true, b.now) })
}

// TestAbortOfNothing changes nothing: a session without requests stays, and so does what
// waits for one.
func TestAbortOfNothing(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	b.Abort(p)
	b.Enqueue(p, 1, b.now)
	b.Abort(p)
	require.Equal(t, []any{wire.Connect}, kindsOf(b.taken()))
	b.connected(p, 3, 1, 0)
	b.taken()
	x := p.ctx
	b.Abort(p)
	require.Empty(t, b.taken())
	b.Posted(x, 1, 1)
	b.Enqueue(b.peer(2), 1, b.now)
	b.Posted(x, b.Quota, 1)
	require.Equal(t, draining, x.state)
	b.Abort(p)
	require.Equal(t, []any{ActAbort, ActLost}, kindsOf(b.taken()))
	require.EqualValues(t, 1, b.Stats.Failures)
	require.EqualValues(t, 1, p.Stats.Failures)
	require.EqualValues(t, 1, p.Stats.Attaches)
	require.EqualValues(t, 1, b.Stats.Attaches)
}

// TestRequestsAreNotOlderSigns: a request that has succeeded shows that its target heard of the
// session when it was connected, which a reply to a later keep-alive has shown already.
func TestRequestsAreNotOlderSigns(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	x := b.attach(p, 3)
	x.Session.counts = true
	b.now += 20 * time.Second
	b.said(p, wire.Message{Kind: wire.Alive, Attempt: x.Session.Attempt, Session: 3, Wait: uint32(b.now / time.Millisecond)})
	require.Equal(t, b.now, x.Session.heard)
	b.Posted(x, 1, 1)
	b.Completed(x, 1, false, b.now)
	require.Equal(t, b.now, x.Session.heard)
}

// TestUnreachableGivesBack the session that the new one was to replace.
func TestUnreachableGivesBack(t *testing.T) {
	b := newBench(t, 1, nil)
	p := b.peer(1)
	p.kept = Session{ID: 8, Context: 0, Attempt: 1}
	b.now = time.Second // it has lapsed
	b.Enqueue(p, 1, b.now)
	as := b.taken()
	require.Equal(t, []any{wire.Connect}, kindsOf(as))
	require.EqualValues(t, 8, as[0].Message.Session)
	for p.ctx != nil {
		as = b.tick()
	}
	require.ElementsMatch(t, []any{wire.Detach, ActFail}, kindsOf(as))
	require.Zero(t, p.kept.ID)
}

// TestNoContexts: when no context works, requests that wait fail, and peers without any are
// left alone. Sessions that are kept are over when their contexts are.
func TestNoContexts(t *testing.T) {
	b := newBench(t, 2, nil)
	idle, kept, waits := b.peer(1), b.peer(2), b.peer(3)
	removed := b.peer(4)
	require.True(t, b.Remove(removed, b.now))
	b.attach(idle, 3)
	b.attach(kept, 4)
	b.Moved(b.now)
	require.Equal(t, 2, b.Counted().Kept)
	b.Part()
	require.Equal(t, []any{wire.Detach, wire.Detach}, kindsOf(b.taken()))
	b.Enqueue(waits, 1, b.now)
	b.taken()
	var failed []*Peer
	bad := errors.New("no queue pair")
	for n := 0; n < lastRepair; n++ {
		for k := range b.Contexts {
			require.Empty(t, failed, "context %d has failed %d times", k, n)
			b.ResetDone(&b.Contexts[k], bad, b.now)
			for _, a := range b.taken() {
				if a.Kind == ActFail {
					require.ErrorIs(t, a.Err, ErrNoContexts)
					failed = append(failed, a.Peer)
				}
			}
		}
	}
	require.Equal(t, []*Peer{waits}, failed)
	require.Zero(t, b.Counted().Kept)
}
