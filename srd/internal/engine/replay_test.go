package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// replayer has the responses of a node repeated to the other one, again and again, from the moment
// it is told to.
type replayer struct {
	w    *world
	seen [][]byte // the last packet of each kind that came by each path
	keys [][3]byte
	on   bool
}

// hear has a replayer listen to what node 1 sends by a link.
func (r *replayer) hear(l *link) {
	l.lose = func(b []byte) bool {
		var k wire.Packet
		if k.Decode(b) != nil || k.Type != wire.Flow && k.Type != wire.Echo {
			return false
		}
		key := [3]byte{byte(k.Type), k.Response.EchoPath, k.Echo.Path}
		for i := range r.keys {
			if r.keys[i] == key {
				r.seen[i] = append([]byte(nil), b...)
				return false
			}
		}
		r.keys, r.seen = append(r.keys, key), append(r.seen, append([]byte(nil), b...))
		return false
	}
}

func (r *replayer) replay(each time.Duration) {
	for _, b := range r.seen {
		r.w.add(event{at: r.w.now, node: r.w.nodes[0], packet: b, from: Source{GID: addrOf(1).GID, QPN: addrOf(1).QPN}})
	}
	if r.on {
		r.w.after(each, func() { r.replay(each) })
	}
}

// An old response does not keep timers from ending, however often it comes again: a
// message that was lost is sent again all the same.
func TestReplayedResponsesReArmNoTimer(t *testing.T) {
	for _, paths := range []int{1, 2} {
		w := settledPair(t, func(c *Config) { c.Paths = paths })
		a := w.nodes[0]
		r := &replayer{w: w, on: true}
		back := &link{delay: 50 * time.Microsecond}
		r.hear(back)
		out := &link{delay: 50 * time.Microsecond}
		w.links = func(from, _, _ int) *link {
			if from == 0 {
				return out
			}
			return back
		}
		for range 8 {
			w.model.post(a, 1, Reliable, 64)
			a.pump()
			w.run(w.now + 5*time.Millisecond)
		}
		require.Zero(t, w.model.open)
		require.NotEmpty(t, r.seen)
		lost := 0
		out.lose = func([]byte) bool { lost++; return lost == 1 }
		l := w.model.post(a, 1, Reliable, 64)
		a.pump()
		r.replay(300 * time.Microsecond)
		w.run(w.now + 50*time.Millisecond)
		r.on = false
		require.Equal(t, 1, l.count, "%d paths", paths)
		require.Equal(t, Delivered, l.status)
	}
}

// Nor are they round trips, which would make timers longer.
func TestReplayedResponsesAreNoRoundTrips(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths, c.PeerTimeout = 1, 5*time.Second })
	a := w.nodes[0]
	r := &replayer{w: w}
	back := &link{delay: 50 * time.Microsecond}
	r.hear(back)
	w.links = func(from, _, _ int) *link { return back }
	for range 8 {
		w.model.post(a, 1, Reliable, 64)
		a.pump()
		w.run(w.now + 5*time.Millisecond)
	}
	x := &a.e.peers[0].net.paths[0]
	before := *x
	w.run(w.now + 200*time.Millisecond)
	for range 50 {
		r.replay(0)
		w.run(w.now + time.Millisecond)
	}
	require.Equal(t, before.SRTT, x.SRTT)
	require.Equal(t, before.RTTVar, x.RTTVar)

	// Nor when all was forgotten that is known of paths that are not used.
	w.run(w.now + 2*restAge)
	p := a.e.peers[0]
	require.Nil(t, p.net)
	back.lose = nil
	w.model.post(a, 1, Reliable, 64)
	a.pump()
	r.replay(0)
	w.run(w.now + 5*time.Millisecond)
	require.Equal(t, before.least, p.net.paths[0].SRTT)
}

// A network that doubles an echo does not bring a path back that is retired: echoes of as many
// probes do.
func TestEchoesCountOnce(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	out[1].dead = true
	stream(w, 4, 64, 0, 200*time.Millisecond)
	e := w.nodes[0].e
	p := e.peers[0]
	x := &p.net.paths[1]
	require.True(t, x.retired)
	var probe []wire.Packet
	for i := 0; len(probe) == 0 && i < 10_000; i++ {
		w.now += 100 * time.Microsecond
		e.Advance(w.nodes[0].raw())
		for _, k := range answers(w.nodes[0]) {
			if k.Type == wire.Probe && k.SubFlow == 1 {
				probe = append(probe, k)
			}
		}
	}
	require.Len(t, probe, 1)
	for range 20 {
		w.now += 10 * time.Microsecond
		e.Advance(w.nodes[0].raw())
		e.onEcho(p, &wire.Packet{Type: wire.Echo, Echo: wire.Echoed{Path: 1, Stamp: probe[0].Stamp}})
	}
	require.True(t, x.retired)
	require.EqualValues(t, 1, x.got)
}

// What an echo tells is limited by what it can be: a packet is not older than the peer's
// timeout, no response waited for longer than its packet is old, and no more packets come late
// than were taken for lost.
func TestEchoesThatCannotBe(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	x := &e.network(p).paths[1]
	w.run(w.now + 3*time.Millisecond)
	w.model.post(a, 1, Reliable, 64)
	require.Len(t, answers(a), 1)
	*x = path{echoedAt: -1}
	p.net.used = e.Now + time.Hour // it is not idle
	ago := func(d time.Duration) uint32 { return e.Stamp() - uint32(d/time.Microsecond) }
	respond := func(age, delay time.Duration) {
		e.onResponse(p, &wire.Response{Service: Reliable, HasEcho: true, EchoPath: 1, EchoStamp: ago(age),
			Delay: uint32(delay / time.Microsecond), Base: p.tx[Reliable].una, Grant: 10})
	}
	respond(time.Millisecond, time.Millisecond+time.Microsecond)
	require.Zero(t, x.SRTT)
	respond(time.Millisecond, 900*time.Microsecond)
	require.Equal(t, 100*time.Microsecond, x.SRTT)
	require.Equal(t, 50*time.Microsecond, x.RTTVar, "it is one round trip")
	before := *x
	respond(2*time.Millisecond, 0)
	require.Equal(t, before, *x)
	x.strays()
	respond(2*time.Millisecond, 0)
	late := *x
	require.Greater(t, late.SRTT, before.SRTT)
	respond(2*time.Millisecond, 0)
	require.Equal(t, late, *x)
	for range 2 * maxStrays {
		x.strays()
	}
	require.EqualValues(t, maxStrays, x.stray)

	w.now += 2 * e.cfg.PeerTimeout
	e.Advance(a.raw())
	x.suspect = true
	e.onEcho(p, &wire.Packet{Type: wire.Echo, Echo: wire.Echoed{Path: 1, Stamp: ago(e.cfg.PeerTimeout)}})
	require.True(t, x.suspect)
	e.onEcho(p, &wire.Packet{Type: wire.Echo, Echo: wire.Echoed{Path: 1, Stamp: ago(e.cfg.PeerTimeout - time.Millisecond)}})
	require.False(t, x.suspect)
}

// A packet that came late begins no timer anew: that of its successor goes on.
func TestStraysBeginNoTimer(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 1 })
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	w.links = func(int, int, int) *link { return &link{dead: true} }
	w.model.post(a, 1, Reliable, 64)
	require.Len(t, answers(a), 1)
	f := p.tx[Reliable]
	x, s := &e.network(p).paths[0], &f.live.subs[0]
	x.strays()
	x.echoedAt = e.Now
	armed := s.armed
	w.now += 100 * time.Microsecond
	e.Advance(a.raw())
	srtt := x.SRTT
	e.onResponse(p, &wire.Response{Service: Reliable, HasEcho: true, EchoStamp: e.Stamp() - 500, Base: f.una, Grant: 10})
	require.Greater(t, x.SRTT, srtt)
	require.Equal(t, armed, s.armed)
}

// A response that settles the packet that it echoes is one round trip.
func TestResponseIsOneRoundTrip(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 1 })
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	w.model.post(a, 1, Reliable, 64).count = 1
	require.Len(t, answers(a), 1)
	f, x := p.tx[Reliable], &e.network(p).paths[0]
	x.SRTT, x.RTTVar = 900*time.Microsecond, 0
	stamp := e.Stamp()
	w.now += 100 * time.Microsecond
	e.Advance(a.raw())
	e.onResponse(p, &wire.Response{Service: Reliable, HasEcho: true, EchoStamp: stamp, Base: f.nxt, Grant: 10})
	require.Equal(t, 800*time.Microsecond, x.SRTT)
}
