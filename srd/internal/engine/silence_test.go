package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Senders that know a fast way all find a slow link in it at once, with a long queue: a round
// trip takes a thousand times as long as before. They wait for it, and nobody is given up.
func TestSlowIncast(t *testing.T) {
	const senders, messages, size = 32, 60, 3900
	cfg := simple(2)
	cfg.MTU, cfg.Budget, cfg.MinTimeout, cfg.AckDelay, cfg.Target, cfg.PeerTimeout = 4096, 384, 0, 0, 0, 0
	w := newWorld(t, 1, senders+1, cfg)
	shared, back := &link{delay: 200 * time.Microsecond}, &link{delay: 200 * time.Microsecond}
	w.links = func(_, to, _ int) *link {
		if to == 0 {
			return shared
		}
		return back
	}
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 0, size)
		n.pump()
		w.run(w.now + 30*time.Millisecond)
	}
	shared.perByte, shared.limit = 800*time.Nanosecond, 3300*time.Millisecond // 10 Mbit/s, 4 MB
	begin := w.now
	for _, n := range w.nodes[1:] {
		for range messages {
			w.model.post(n, 0, Reliable, 0, size)
		}
		n.pump()
	}
	for w.model.open > 0 && w.now < begin+time.Minute {
		w.run(w.now + 10*time.Millisecond)
	}
	for _, l := range w.model.sent {
		require.Equal(t, Delivered, l.status)
	}
	again, probes := uint64(0), uint64(0)
	for _, n := range w.nodes[1:] {
		again += n.e.Stats.Retransmitted
		probes += n.e.Stats.Probes
	}
	share := senders * messages * size * shared.perByte.Seconds() / (w.now - begin).Seconds()
	t.Logf("%.3f of the link, %d packets sent again, %d lost, %d probes", share, again, shared.lost, probes)
	require.Greater(t, share, 0.8)
	require.Less(t, again, uint64(senders*messages/6))
	require.Less(t, probes, uint64(senders*messages/2))
	require.Zero(t, shared.lost)
}

// In silence one packet at a time is sent again, ever later. With the first answer, to a
// probe for instance, the others go at once, and timers are as short as before.
func TestAnswerEndsSilence(t *testing.T) {
	w := newWorld(t, 1, 2, simple(2))
	dead, partsLost := false, false
	w.links = func(int, int, int) *link {
		return &link{delay: 50 * time.Microsecond, dead: dead, lose: func(b []byte) bool {
			var k wire.Packet
			return partsLost && k.Decode(b) == nil && k.HasPart
		}}
	}
	a := w.nodes[0]
	send := func(n int, within time.Duration) {
		for range n {
			w.model.post(a, 1, Reliable, 0, 600)
		}
		a.pump()
		w.run(w.now + within)
	}
	send(8, 10*time.Millisecond)
	require.Zero(t, w.model.open)
	dead = true
	send(8, 300*time.Millisecond)
	require.Equal(t, 8, w.model.open)
	require.LessOrEqual(t, a.e.Stats.Retransmitted, uint64(8))
	dead, partsLost = false, true
	for answered := a.e.peers[0].net.answered; a.e.peers[0].net.answered == answered; {
		w.run(w.now + 20*time.Microsecond)
	}
	partsLost = false
	w.run(w.now + 5*time.Millisecond)
	require.Zero(t, w.model.open)
	timeouts := a.e.Stats.Timeouts
	dead = true
	send(1, 4*time.Millisecond)
	require.Greater(t, a.e.Stats.Timeouts, timeouts)
}

// Timers of many sub-flows that end together count as one, and none counts that began before
// the last answer.
func TestSilenceIsCountedOnce(t *testing.T) {
	w := settledPair(t, nil)
	e := w.nodes[0].e
	p := e.peers[0]
	n := e.network(p)
	e.answers(p)
	w.run(w.now + 5*time.Millisecond)
	e.Advance(w.nodes[0].raw())
	for range 8 {
		e.unanswered(n, n.answered+time.Millisecond)
	}
	require.EqualValues(t, 1, n.silent)
	e.unanswered(n, e.now)
	require.EqualValues(t, 2, n.silent)
	require.NotZero(t, e.Wait())
	e.answers(p)
	require.Zero(t, e.Wait(), "there may be more to do")
	e.unanswered(n, n.answered-time.Millisecond)
	require.Zero(t, n.silent)
}
