package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// forgets has a node forget its first peer, as a full table does with a peer that was silent
// for long.
func (n *node) forgets() {
	n.e.Advance(n.raw())
	p := n.e.peers[0]
	require.True(n.w.t, !n.e.unsettled(p) && n.e.Now-p.Heard.At > n.e.cfg.EvictAge)
	n.e.Forget(&p.Peer)
}

// oneWays is a pair of nodes with a link for each direction.
func oneWays(t *testing.T, key *wire.Key) (w *world, up, down *link) {
	cfg := simple(2)
	cfg.Key = key
	w = newWorld(t, 1, 2, cfg)
	up, down = &link{delay: 50 * time.Microsecond}, &link{delay: 50 * time.Microsecond}
	w.links = func(from, _, _ int) *link { return []*link{up, down}[from] }
	w.run(10 * time.Millisecond)
	return w, up, down
}

// A message that came before its receiver forgot the sender does not come again: whichever
// end is the more patient, if the sender's clock stood still meanwhile, and if the message went
// with a greeting.
func TestMessageFromBeforeThePeerForgot(t *testing.T) {
	for _, with := range []struct {
		name    string
		key     *wire.Key
		patient bool
		session bool
		stops   bool
	}{
		{name: "patient sender", patient: true, session: true},
		{name: "suspended sender", stops: true, session: true},
		{name: "greeting", patient: true, key: &wire.Key{1, 2}},
		{name: "greeting of a suspended sender", stops: true, key: &wire.Key{1, 2}},
	} {
		t.Run(with.name, func(t *testing.T) {
			w, up, down := oneWays(t, with.key)
			a, b := w.nodes[0], w.nodes[1]
			if with.patient {
				a.e.cfg.PeerTimeout, a.e.cfg.EvictAge = 5*time.Second, 20*time.Second
			}
			if with.session {
				w.model.post(a, 1, Reliable, 64)
				a.pump()
				w.run(w.now + 20*time.Millisecond)
			}
			down.dead = true
			l := w.model.post(a, 1, Reliable, 64)
			a.pump()
			w.run(w.now + 200*time.Microsecond)
			require.Equal(t, 1, l.count)
			up.dead = true
			if with.stops {
				a.silent = true
				a.offset -= 4200 * time.Millisecond
			}
			w.run(w.now + 4200*time.Millisecond)
			b.forgets()
			if with.stops {
				a.offset -= 2 * time.Second
				w.run(w.now + 2*time.Second)
			}
			up.dead, down.dead, a.silent, a.wakeAt = false, false, false, never
			a.pump()
			w.run(w.now + 10*time.Second)
			require.Equal(t, 1, l.count)
			require.Equal(t, Unresponsive, l.status)
			w.model.end()
		})
	}
}

// Nor does it if responses to earlier ones came late, one after the other.
func TestLateResponses(t *testing.T) {
	w, up, down := oneWays(t, nil)
	a, b := w.nodes[0], w.nodes[1]
	w.model.post(a, 1, Reliable, 64)
	a.pump()
	w.run(w.now + 20*time.Millisecond)
	start := w.now
	var held [][]byte
	down.lose = func(p []byte) bool { held = append(held, bytes.Clone(p)); return true }
	var ls []*letter
	for range 5 {
		n := len(held)
		ls = append(ls, w.model.post(a, 1, Reliable, 64))
		a.pump()
		for i := 0; len(held) == n && i < 30; i++ {
			w.run(w.now + 50*time.Microsecond)
		}
		require.Len(t, held, n+1)
	}
	up.dead = true
	for i := range 4 {
		w.run(start + time.Duration(i+1)*900*time.Millisecond)
		w.add(event{at: w.now, node: a, packet: held[i], from: source(addrOf(1))})
		w.run(w.now + time.Millisecond)
		require.Equal(t, Delivered, ls[i].status)
	}
	w.run(start + 4100*time.Millisecond)
	require.Zero(t, ls[4].status)
	b.forgets()
	up.dead, down.lose = false, nil
	w.run(w.now + 10*time.Second)
	require.Equal(t, 1, ls[4].count)
	require.Equal(t, Unresponsive, ls[4].status)
}

// A peer that may have forgotten its sender is greeted before anything is sent, as soon as the
// peer's time may be over: the sender's is longer here.
func TestGreetedAgainAfterAPause(t *testing.T) {
	w, _, _ := oneWays(t, nil)
	a, b := w.nodes[0], w.nodes[1]
	a.e.cfg.PeerTimeout, a.e.cfg.EvictAge = 5*time.Second, 20*time.Second
	send := func() {
		l := w.model.post(a, 1, Reliable, 64)
		a.pump()
		w.run(w.now + 100*time.Millisecond)
		require.Equal(t, Delivered, l.status)
		require.Equal(t, 1, l.count)
	}
	send()
	w.run(w.now + 1500*time.Millisecond)
	sessions, sent := a.e.Stats.Sessions, b.e.Stats.Sent
	send()
	require.Equal(t, sent+1, b.e.Stats.Sent, "it was not greeted")
	w.run(w.now + 2100*time.Millisecond)
	send()
	require.Equal(t, sent+3, b.e.Stats.Sent, "it was")
	require.Equal(t, sessions, a.e.Stats.Sessions)
	w.run(w.now + 4100*time.Millisecond)
	b.forgets()
	send()
	require.Equal(t, sessions+1, a.e.Stats.Sessions)
}

// The clock of a host that is behind the start of its peers costs the first message to each of
// them a round trip, and nothing else: the peer has forgotten nothing since the message was sent.
func TestClockBehindThePeersStart(t *testing.T) {
	cfg := simple(2)
	cfg.Key = &wire.Key{1, 2}
	w := newWorld(t, 1, 6, cfg)
	w.run(10 * time.Second)
	a := w.nodes[0]
	a.start(uint64(11 * time.Second))
	for to := 1; to < 6; to++ {
		for range 2 {
			l := w.model.post(a, to, Reliable, 64)
			a.pump()
			w.run(w.now + 200*time.Millisecond)
			require.Equal(t, Delivered, l.status)
			require.Equal(t, 1, l.count)
		}
	}
	w.model.end()
}
