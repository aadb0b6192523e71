package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// A device that takes long for a packet has its own times, within limits, and forgets them when
// it is faster. Few packets tell nothing of the queue.
func TestTimesOfTheDevice(t *testing.T) {
	w := settledPair(t, nil)
	e := w.nodes[0].e
	target, ack, most := e.cfg.Target, e.cfg.AckDelay, e.cfg.MinTimeout
	at := func(wantTarget, wantAck time.Duration) {
		t.Helper()
		require.Equal(t, wantTarget, e.target)
		require.Equal(t, wantAck, e.AckDelay())
	}
	at(target, ack)
	for range 100 {
		e.Took(1, target)
	}
	at(target, most)
	e.Took(7, 0)
	at(target, ack)

	each := 100 * time.Microsecond
	e.Took(8, 8*each)
	at(max(target, 64*each/4), max(ack, 8*each/4)) // it may have been seen late
	for range 100 {
		e.Took(8, 8*each)
	}
	require.InDelta(t, float64(64*each), float64(e.target), 1e4)
	require.InDelta(t, float64(8*each), float64(e.AckDelay()), 1e4)
	e.Took(32, 32*each/2)
	at(64*each/2, max(ack, 8*each/2))
	for range 100 {
		e.Took(8, time.Second)
	}
	at(10*target, most)
	e.Took(7, time.Hour)
	at(10*target, most)
	e.Took(1, 100*time.Microsecond) // less than was thought, and what follows are few packets at a time
	require.Equal(t, 64*100*time.Microsecond, e.target)
	e.Took(2, 90*time.Microsecond)
	require.Equal(t, 64*90*time.Microsecond, e.target)
	e.Took(2, 10*time.Microsecond)
	require.Equal(t, target, e.target)
	for range 100 {
		e.Took(8, time.Second)
	}
	e.Took(8, -time.Second) // a clock that went back
	at(target, ack)
	require.Zero(t, e.each)
}

// Hosts that take long for a packet, and say so, have more packets under way and fewer
// responses.
func TestSlowHosts(t *testing.T) {
	const each = 300 * time.Microsecond
	carried := func(told bool) (window uint32, perResponse float64) {
		w := newWorld(t, 1, 2, simple(8))
		hosts := [2]*link{}
		for i := range hosts {
			hosts[i] = &link{delay: 50 * time.Microsecond, each: each, limit: time.Hour}
		}
		w.links = func(from, _, _ int) *link { return hosts[from] }
		if told {
			w.nodes[0].each, w.nodes[1].each = each, each
		}
		stream(w, 96, 4000, 0, 500*time.Millisecond)
		a, b := &w.nodes[0].e.Stats, &w.nodes[1].e.Stats
		sent, responses := a.Sent, b.Responses
		stream(w, 96, 4000, 0, 1500*time.Millisecond)
		require.Less(t, a.Retransmitted, a.Sent/50)
		return w.nodes[0].e.peers[0].net.window >> 8, float64(a.Sent-sent) / float64(b.Responses-responses)
	}
	window, per := carried(false)
	learned, few := carried(true)
	t.Logf("window %d and %.1f packets a response; %d and %.1f where the device tells", window, per, learned, few)
	require.Greater(t, learned, 2*window)
	require.Greater(t, few, 1.5*per)
}

// Hosts that take long for a packet, and say so, carry more of a stream that loses packets here
// and there.
func TestSlowHostsCarryMore(t *testing.T) {
	const each = 300 * time.Microsecond
	carried := func(told bool) (n uint64) {
		for seed := range uint64(3) {
			w := newWorld(t, seed+1, 2, Config{Config: session.Config{MTU: 4096}, Paths: 8})
			hosts := [2]*link{}
			for i := range hosts {
				hosts[i] = &link{delay: 50 * time.Microsecond, each: each, limit: time.Hour, loss: 0.01}
			}
			w.links = func(from, _, _ int) *link { return hosts[from] }
			if told {
				w.nodes[0].each, w.nodes[1].each = each, each
			}
			stream(w, 96, 1024, 0, 500*time.Millisecond)
			n -= w.nodes[1].e.Stats.Delivered
			stream(w, 96, 1024, 0, 3500*time.Millisecond)
			n += w.nodes[1].e.Stats.Delivered
		}
		return n
	}
	without, with := carried(false), carried(true)
	t.Logf("%d messages, and %d where the device tells", without, with)
	require.Greater(t, with, without+without/40)
}

// A timer that ends for the last packets of a burst, of which others arrived, says that they
// were lost, and not that the path is dead; a second one does.
func TestBurstThatArrivedInPart(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		w := settledPair(t, func(c *Config) { c.Paths = 4 })
		a := w.nodes[0]
		e, p := a.e, a.e.peers[0]
		n, f := e.network(p), p.tx[Reliable]
		p.grant, n.window = 256, largestWindow
		for range 3 {
			w.model.post(a, 1, Reliable, 64).count = 1 // nothing is carried to the other node
		}
		e.Now++
		p.flying = 8 * longestBurst // so that a burst has more than these
		require.Len(t, answers(a), 3)
		p.flying -= 8 * longestBurst
		path := f.live.at(f.una).path
		require.Equal(t, path, f.live.at(f.una+2).path)
		s := &f.live.subs[path]
		if arrived {
			e.onResponse(p, &wire.Response{Service: Reliable, Base: f.una + 1, Floor: f.una, Grant: 100})
		}
		e.expired(f, path)
		require.Equal(t, !arrived, n.paths[path].suspect)
		require.Equal(t, arrived, !s.empty() && n.failing == 0)
		e.expired(f, path)
		require.True(t, n.paths[path].suspect)
		require.True(t, s.empty())
	}
}

// A receiver that lets responses wait for longer than its sender does, since its device takes long,
// is allowed for by senders that do not: single messages are not sent again for it.
func TestPeerThatIsSlowToRespond(t *testing.T) {
	w := settledPair(t, nil)
	pathsFrom(w, func(int) *link { return &link{delay: 250 * time.Microsecond} })
	a, b := w.nodes[0], w.nodes[1]
	for range 100 {
		b.e.Took(8, 8*time.Second)
	}
	require.Equal(t, b.e.cfg.MinTimeout, b.e.AckDelay())
	for range 100 {
		m := w.model.post(a, 1, Reliable, 64)
		a.e.messages[uint32(m.handle)].now = false
		a.pump()
		w.run(w.now + 5*time.Millisecond)
	}
	require.Zero(t, w.model.open)
	require.LessOrEqual(t, a.e.Stats.Retransmitted, uint64(4))

	e, p := a.e, a.e.peers[0]
	n := e.network(p)
	require.Equal(t, e.cfg.MinTimeout, e.peerDelay(n))
	says := func(more, delay time.Duration) time.Duration {
		w.model.post(a, 1, Reliable, 64)
		require.NotEmpty(t, answers(a))
		f := p.tx[Reliable]
		sent := e.Stamp()
		f.live.more = more * e.Now
		w.now += 5 * time.Millisecond
		e.Now += 5 * time.Millisecond
		e.onResponse(p, &wire.Response{Service: Reliable, Base: f.una, Floor: f.una, Grant: 100, HasEcho: true, EchoStamp: sent, Delay: uint32(delay / time.Microsecond)})
		e.fail(p, true)
		return n.delay
	}
	for range 60 {
		says(0, 10*time.Microsecond)
	}
	require.Equal(t, e.cfg.AckDelay, e.peerDelay(n), "it is fast again")
	before := n.delay
	require.Equal(t, before, says(1, 300*time.Microsecond), "of a burst")
	require.Equal(t, 300*time.Microsecond, says(0, 300*time.Microsecond))
	require.Equal(t, 300*time.Microsecond, e.peerDelay(n))
	says(0, 3*time.Millisecond)
	require.Equal(t, e.cfg.MinTimeout, e.peerDelay(n), "no device is as slow as that")
}
