package session

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLine: against a list that is searched.
func TestLine(t *testing.T) {
	const maxWait = 50 * time.Millisecond
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		lines := [2]*line{{}, {}}
		var waiting [2][]*Peer
		var now time.Duration
		entered := map[*Peer]int{} // its class as of when
		seq := 0
		for range 400 {
			now += time.Duration(rng.Int64N(int64(4 * time.Millisecond)))
			seq++
			k := rng.IntN(2)
			switch l := lines[k]; {
			case rng.IntN(2) == 0:
				p := &Peer{pending: rng.Int32N(40), since: now - time.Duration(rng.Int64N(int64(3*time.Millisecond)))}
				l.add(p)
				entered[p] = seq
				waiting[k] = append(waiting[k], p)
			case len(waiting[k]) > 0 && rng.IntN(2) == 0:
				p := waiting[k][rng.IntN(len(waiting[k]))]
				before := classOf(p.pending)
				p.pending += rng.Int32N(5)
				l.changed(p)
				if classOf(p.pending) != before {
					entered[p] = seq
				}
			default:
				p := lines[0].next(lines[1], now, maxWait)
				want := bestOf(waiting, now, maxWait, entered)
				require.Equal(t, want == nil, p == nil)
				if p == nil {
					continue
				}
				late := now-want.since >= maxWait
				require.Equal(t, late, now-p.since >= maxWait, "seed %d", seed)
				if late {
					require.Equal(t, want.since, p.since, "seed %d: the one who waited longest", seed)
				} else {
					require.Equal(t, want.urgency(now, maxWait), p.urgency(now, maxWait), "seed %d: the most urgent one", seed)
				}
				if other := slices.Index(waiting[0], p); other >= 0 {
					if !late {
						require.Same(t, firstOf(waiting[0], p, entered), p, "seed %d: first come in its class", seed)
					}
					lines[0].remove(p)
					waiting[0] = slices.Delete(waiting[0], other, other+1)
				} else {
					lines[1].remove(p)
					waiting[1] = slices.DeleteFunc(waiting[1], func(q *Peer) bool { return q == p })
				}
			}
			for k := range lines {
				require.Equal(t, len(waiting[k]), lines[k].n)
				require.Equal(t, len(waiting[k]) == 0, lines[k].empty())
			}
		}
	}
}

// bestOf is the one that has waited longest if that is too long, and the most urgent
// one otherwise of those that came first into their classes.
func bestOf(lines [2][]*Peer, now, maxWait time.Duration, entered map[*Peer]int) (best *Peer) {
	for _, all := range lines {
		for _, p := range all {
			late := now-p.since >= maxWait
			if !late && firstOf(all, p, entered) != p {
				continue
			}
			switch than := best != nil && now-best.since >= maxWait; {
			case best == nil, late && !than:
				best = p
			case late && p.since < best.since:
				best = p
			case !late && !than && p.urgency(now, maxWait) > best.urgency(now, maxWait):
				best = p
			}
		}
	}
	return best
}

// TestUrgency: more requests count for more than a longer wait, up to a point.
func TestUrgency(t *testing.T) {
	const maxWait = 640 * time.Millisecond // a 64th of it is 10 ms
	at := func(pending int32, wait time.Duration) int64 {
		return (&Peer{class: classOf(pending), since: time.Hour - wait}).urgency(time.Hour, maxWait)
	}
	require.Greater(t, at(2, 0), at(1, 60*time.Millisecond), "eight times 10 ms")
	require.Less(t, at(2, 0), at(1, 80*time.Millisecond))
	require.Greater(t, at(4, 100*time.Millisecond), at(3, 200*time.Millisecond))
	require.Greater(t, at(3, 200*time.Millisecond), at(3, 199*time.Millisecond))
	require.Equal(t, at(1, time.Millisecond), at(0, time.Millisecond), "who only asks for a session")
	require.Positive(t, (&Peer{class: classes - 1}).urgency(30*24*time.Hour, 30*24*time.Hour), "no overflow")
}

// TestBefore: of two targets the more urgent one is served first, and the first one of equals,
// until one has waited for the bound. Of those the first one is.
func TestBefore(t *testing.T) {
	const now, maxWait = time.Hour, 640 * time.Millisecond
	waits := func(pending int32, wait time.Duration) *Peer {
		return &Peer{pending: pending, class: classOf(pending), since: now - wait}
	}
	for name, v := range map[string]struct{ first, second *Peer }{
		"more requests":             {waits(2, 0), waits(1, 60*time.Millisecond)},
		"as urgent, and came first": {waits(1, 70*time.Millisecond), waits(2, 0)},
		"waited for the bound":      {waits(1, maxWait), waits(32, maxWait-1)},
		"both have, and came first": {waits(1, maxWait+1), waits(32, maxWait)},
	} {
		require.True(t, v.first.before(v.second, now, maxWait), name)
		require.False(t, v.second.before(v.first, now, maxWait), name)
		var a, b, both line
		a.add(v.first)
		b.add(v.second)
		require.Same(t, v.first, a.next(&b, now, maxWait), name)
		require.Same(t, v.first, b.next(&a, now, maxWait), name)
		if v.first.urgency(now, maxWait) != v.second.urgency(now, maxWait) {
			a.remove(v.first)
			b.remove(v.second)
			both.add(v.second)
			both.add(v.first)
			require.Same(t, v.first, both.next(&line{}, now, maxWait), name)
		}
	}
}

// TestSameTime: of targets that begin to wait at the same time the first one is served first, as
// the most urgent one and as the one that has waited for the bound.
func TestSameTime(t *testing.T) {
	for _, now := range []time.Duration{0, time.Second} {
		var l line
		first, second := &Peer{}, &Peer{}
		l.add(first)
		l.add(second)
		require.Same(t, first, l.next(&line{}, now, time.Second))
	}
}

// firstOf returns the target of a class that came into it first.
func firstOf(all []*Peer, like *Peer, entered map[*Peer]int) *Peer {
	first := like
	for _, p := range all {
		if classOf(p.pending) == classOf(like.pending) && entered[p] < entered[first] {
			first = p
		}
	}
	return first
}

func TestTimers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	var h timers
	set := map[*Peer]time.Duration{}
	var peers []*Peer
	for range 50 {
		peers = append(peers, &Peer{})
	}
	for range 5000 {
		p := peers[rng.IntN(len(peers))]
		if rng.IntN(3) == 0 {
			h.clear(p)
			delete(set, p)
		} else {
			set[p] = time.Duration(rng.IntN(1000))
			h.set(p, set[p])
		}
		next := Never
		for _, at := range set {
			next = min(next, at)
		}
		require.Equal(t, next, h.next())
		require.Len(t, h, len(set))
	}
}

// TestNobodyWaitsInAnotherLine for too long: a target with a session of a context
// that has many of them is served by another one, before those that came later.
func TestNobodyWaitsInAnotherLine(t *testing.T) {
	b := newBench(t, 2, nil)
	hog := b.peer(1)
	y := b.attach(hog, 1)
	b.Posted(y, 1, 1) // never empty for as long as it takes to make sessions at x
	var kept []*Peer
	for n := range uint32(30) {
		p := b.peer(10 + n)
		b.Enqueue(p, 1, b.now)
		x := p.ctx
		require.NotSame(t, y, x)
		if x.resetting {
			b.ResetDone(x, nil, b.now)
		}
		b.connected(p, uint64(100+n), 1, time.Millisecond)
		b.taken()
		kept = append(kept, p)
	}
	x := kept[29].ctx
	kept = kept[:29]
	b.Posted(x, 1, 1)
	for _, p := range kept {
		b.Enqueue(p, 1, b.now)
		require.True(t, p.line == &x.line)
	}
	b.Completed(y, 1, false, b.now)
	require.Same(t, hog, y.peer, "nobody waits for it")
	// In turn: a request at x, which takes almost as long as a context may be held; and
	// at y a target that has just come.
	begun := b.now
	for n := uint32(0); b.waiting > 0; n++ {
		require.Less(t, n, uint32(100))
		b.Completed(x, 1, false, b.now)
		b.taken()
		if x.state == joining {
			b.Joined(x, nil, b.now)
			b.Took(x.peer, 1)
			b.Posted(x, 1, 1)
		}
		late := 0
		for _, p := range kept {
			if p.rest == inLine && b.now-p.since >= b.MaxWait {
				late++
			}
		}
		p := b.peer(100 + n)
		b.Enqueue(p, 1, b.now)
		if late > 0 {
			require.NotSame(t, p, y.peer, "after %v, %d wait for longer than they may", b.now-begun, late)
		}
		b.Withdraw(p, 1, false)
		if y.resetting {
			b.ResetDone(y, nil, b.now)
		}
		if y.state == connecting {
			b.answer(y.peer, uint64(1000+n))
			b.Joined(y, nil, b.now)
			if q := y.peer; q.pending > 0 {
				b.Took(q, 1)
				b.Posted(y, 1, 1)
				b.Completed(y, 1, false, b.now)
			}
		}
		b.taken()
		b.now += 9 * b.Hold / 10
	}
	require.Less(t, b.now-begun, b.MaxWait+20*b.Hold)
}
