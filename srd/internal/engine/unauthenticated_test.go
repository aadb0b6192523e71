package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// hello is the greeting of an endpoint that need not exist.
func hello(from, to wire.Addr, g wire.Greeting, key *wire.Key) []byte {
	g.From, g.Limits = from, anyLimits
	k := wire.Packet{Type: wire.Hello, Greeting: g}
	b := make([]byte, wire.MaxHeaders)
	b = b[:k.Encode(b)]
	if key != nil {
		wire.SetMAC(b, wire.Seal(*key, &to, b, nil))
	}
	return b
}

// answers returns the packets that a node's engine sends now.
func answers(n *node) (out []wire.Packet) {
	var b [wire.MaxHeaders]byte
	var o Out
	for n.e.Next(b[:], &o) {
		var k wire.Packet
		if err := k.Decode(append(append([]byte(nil), b[:o.Headers]...), make([]byte, o.Length)...)); err != nil {
			n.w.t.Fatal(err)
		}
		out = append(out, k)
	}
	return out
}

func source(a wire.Addr) Source { return Source{GID: a.GID, QPN: a.QPN} }

// Unauthenticated peers without a cookie cost nothing that stays, and few replies.
func TestUnauthenticatedPeersCostNothing(t *testing.T) {
	w := newWorld(t, 1, 1, simple(2))
	n := w.nodes[0]
	n.e.Advance(n.raw())
	got := 0
	for i := range 10000 {
		from := addrOf(i + 10)
		n.e.Receive(source(from), hello(from, addrOf(0), wire.Greeting{Epoch: 5, Token: 6, Stamp: 7, Cookie: uint64(i)}, nil))
		junk := wire.Packet{Type: wire.Flow, Token: uint64(i), HasPart: true, Part: wire.Part{Fragment: 1}}
		b := make([]byte, wire.MaxHeaders)
		n.e.Receive(source(from), b[:junk.Encode(b)])
		got += len(answers(n))
	}
	require.Empty(t, n.e.peers)
	require.Empty(t, n.e.messages)
	require.LessOrEqual(t, got, session.ReplyBurst, "answers in no time")
	require.EqualValues(t, 20000-got, n.e.Stats.Unanswered)
	w.now += 10 * session.ReplyInterval
	n.e.Advance(n.raw())
	for range 20 {
		n.e.Receive(source(addrOf(5)), hello(addrOf(5), addrOf(0), wire.Greeting{Epoch: 5, Token: 6, Stamp: 7}, nil))
	}
	require.Len(t, answers(n), 10)
}

// A cookie is for one address, epoch and token, and for a while.
func TestCookies(t *testing.T) {
	ask := func(n *node, from wire.Addr, g wire.Greeting) []wire.Packet {
		n.e.Advance(n.raw())
		n.e.Receive(source(from), hello(from, addrOf(0), g, nil))
		return answers(n)
	}
	a, b := addrOf(10), addrOf(11)
	g := wire.Greeting{Epoch: 5, Token: 6, Stamp: 7}
	w := newWorld(t, 1, 1, simple(2))
	n := w.nodes[0]
	challenge := ask(n, a, g)[0]
	require.Equal(t, wire.Challenge, challenge.Type)
	require.EqualValues(t, 6, challenge.Token)
	g.Cookie = challenge.Challenge.Cookie
	for _, other := range []wire.Greeting{{Epoch: 4, Token: 6, Cookie: g.Cookie}, {Epoch: 5, Token: 7, Cookie: g.Cookie}} {
		require.Equal(t, wire.Challenge, ask(n, a, other)[0].Type)
	}
	require.Equal(t, wire.Challenge, ask(n, b, g)[0].Type)
	spoofed := a
	spoofed.QPN++
	require.Equal(t, wire.Challenge, ask(n, spoofed, g)[0].Type)
	require.Empty(t, n.e.peers)
	require.Equal(t, wire.Welcome, ask(n, a, g)[0].Type)
	require.Len(t, n.e.peers, 1)

	n.e.Receive(source(b), hello(addrOf(12), addrOf(0), wire.Greeting{Epoch: 1, Token: 2}, nil))
	require.Empty(t, answers(n), "not who it says")
	require.NotZero(t, n.e.Stats.WrongSource)

	w = newWorld(t, 1, 1, simple(2))
	n = w.nodes[0]
	g.Cookie = 0
	g.Cookie = ask(n, a, g)[0].Challenge.Cookie
	for range 100 { // an hour, in steps that are no jumps
		w.now += n.e.cfg.PeerTimeout / 20
		n.e.Advance(n.raw())
	}
	require.Equal(t, wire.Challenge, ask(n, a, g)[0].Type, "a cookie of the day before yesterday")
	require.Empty(t, n.e.peers)
}

// With the deployment's key the first packet brings a message; a replay of it brings
// nothing, not even to a successor or after the peer was forgotten.
func TestKeys(t *testing.T) {
	cfg := simple(2)
	key := wire.Key{3, 4}
	cfg.Key = &key
	w := newWorld(t, 1, 2, cfg)
	a, b := w.nodes[0], w.nodes[1]
	l := w.model.post(a, 1, Reliable, 64)
	a.e.Advance(a.raw())
	var first [wire.MaxHeaders]byte
	var o Out
	require.True(t, a.e.Next(first[:], &o))
	packet := append(append([]byte(nil), first[:o.Headers]...), w.model.bytes(0)...)
	if o.Seal {
		a.e.Seal(&o.To, packet[:o.Headers], packet[o.Headers:])
	}
	changed := append([]byte(nil), packet...)
	changed[len(changed)-1]++
	b.e.Advance(b.raw())
	b.e.Receive(source(addrOf(0)), changed)
	require.Zero(t, l.count)
	require.Empty(t, b.e.peers)
	require.Empty(t, answers(b), "nothing for those without the key")
	require.EqualValues(t, 1, b.e.Stats.WrongKey)

	b.e.Receive(source(addrOf(0)), packet)
	require.Equal(t, 1, l.count, "with the first packet")
	b.e.Receive(source(addrOf(0)), packet)
	require.Equal(t, 1, l.count)
	b.e.Forget(&b.e.peers[0].Peer)
	b.e.Receive(source(addrOf(0)), packet)
	require.Equal(t, 1, l.count)
	got := answers(b)
	require.Equal(t, wire.Challenge, got[len(got)-1].Type)
	w.now += time.Second
	b.start(0)
	b.e.Advance(b.raw())
	b.e.Receive(source(addrOf(0)), packet)
	require.Equal(t, 1, l.count, "to a successor")
	require.Equal(t, wire.Challenge, answers(b)[0].Type)
	future := hello(addrOf(3), addrOf(1), wire.Greeting{Epoch: 1, Token: 2, Stamp: 1 << 62}, &key)
	b.e.Receive(source(addrOf(3)), future)
	require.Equal(t, wire.Challenge, answers(b)[0].Type, "stamps of the future stay valid for ever")
}

// Without a key nothing goes to an unauthenticated peer with the first greeting.
func TestFirstPackets(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 1}} {
		cfg := simple(2)
		cfg.Key = key
		w := newWorld(t, 1, 2, cfg)
		l := w.model.post(w.nodes[0], 1, Reliable, 64)
		w.nodes[0].pump()
		w.run(w.now + 20*time.Millisecond)
		require.Equal(t, Delivered, l.status)
		want := 250 * time.Microsecond // three trips
		if key != nil {
			want = 50 * time.Microsecond
		}
		require.Equal(t, want, l.arrived-l.sentAt)
	}
}

// settledPair is two nodes that have exchanged a message.
func settledPair(t *testing.T, f func(*Config)) *world {
	cfg := simple(2)
	if f != nil {
		f(&cfg)
	}
	w := newWorld(t, 1, 2, cfg)
	w.model.post(w.nodes[0], 1, Reliable, 64)
	w.nodes[0].pump()
	w.run(w.now + 20*time.Millisecond)
	require.Zero(t, w.model.open)
	return w
}

// A Reset that an unauthenticated peer invents, or that names the right token, ends nothing.
func TestForgedResets(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	sessions := a.e.Stats.Sessions
	l := w.model.post(a, 1, Ordered, 300000)
	a.pump()
	for i := range 20 {
		w.run(w.now + 100*time.Microsecond)
		k := wire.Packet{Type: wire.Reset, Reset: a.e.peers[0].Remote}
		if i%2 == 0 {
			k.Reset++
		}
		b := make([]byte, wire.MaxHeaders)
		a.e.Receive(source(addrOf(1)), b[:k.Encode(b)])
		if i == 0 {
			require.EqualValues(t, session.Established, a.e.peers[0].State, "a token that is not the peer's")
		}
		a.pump()
	}
	require.NotZero(t, a.e.Stats.Bogus)
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, l.status)
	require.Equal(t, sessions, a.e.Stats.Sessions)
}

// Packets of a session come from the peer's address, and have its verification tag.
func TestSourcesOfPackets(t *testing.T) {
	w := settledPair(t, nil)
	b := w.nodes[1]
	p := b.e.peers[0]
	send := func(from wire.Addr, vtag uint32) {
		k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: vtag, HasPart: true, Part: wire.Part{Seq: 9, Floor: 9, Total: 0, Fragment: 10}}
		buf := make([]byte, wire.MaxHeaders)
		b.e.Receive(source(from), buf[:k.Encode(buf)])
	}
	send(addrOf(7), p.Theirs)
	require.EqualValues(t, 1, b.e.Stats.WrongSource)
	send(addrOf(0), p.Theirs+1)
	require.EqualValues(t, 1, b.e.Stats.OldEpoch)
}

// A peer that restarts is another one: what is under way to it ends, what comes later
// goes to the successor, and the predecessor's greetings are refused.
func TestRestart(t *testing.T) {
	w := settledPair(t, nil)
	a, b := w.nodes[0], w.nodes[1]
	old := hello(addrOf(0), addrOf(1), wire.Greeting{Epoch: a.e.cfg.Wall, Token: a.e.peers[0].Local, Stamp: 1}, nil)
	w.links = func(from, to, path int) *link {
		return &link{delay: 50 * time.Microsecond, dead: to == 0}
	}
	sent := w.model.post(a, 1, Reliable, 64)
	a.pump()
	w.run(w.now + time.Millisecond)
	require.Equal(t, 1, sent.count)
	w.links = func(from, to, path int) *link { return &link{delay: 50 * time.Microsecond} }
	w.model.crash(b, 0)
	w.run(w.now + 500*time.Millisecond)
	require.Equal(t, Unresponsive, sent.status)
	require.Equal(t, 1, sent.count)
	later := w.model.post(a, 1, Ordered, 64)
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, later.status)

	w.model.crash(a, 0)
	again := w.model.post(a, 1, Reliable, 64)
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, again.status)
	b.e.Receive(source(addrOf(0)), old)
	require.Equal(t, a.e.cfg.Wall, answers(b)[0].Challenge.Known)
	require.NotZero(t, b.e.Stats.OldEpoch)

	w.model.crash(a, uint64(time.Hour)) // its clock went back
	again = w.model.post(a, 1, Reliable, 64)
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, again.status)
}

// A full table of peers forgets those that were silent for long, and no others.
func TestManyPeers(t *testing.T) {
	cfg := simple(2)
	w := newWorld(t, 1, 12, cfg)
	hub := w.nodes[0]
	w.cfg.MaxPeers = 4
	hub.start(0)
	w.cfg.MaxPeers = 0
	send := func(i int) *letter {
		l := w.model.post(w.nodes[i], 0, Reliable, 64)
		w.nodes[i].pump()
		return l
	}
	for i := 1; i < 5; i++ {
		send(i)
	}
	w.run(w.now + 50*time.Millisecond)
	refused := send(5)
	w.run(w.now + 2*time.Second)
	require.Equal(t, Unresponsive, refused.status, "all four were heard lately")
	w.run(w.now + 2*hub.e.cfg.EvictAge)
	var late []*letter
	for i := 5; i < 9; i++ {
		late = append(late, send(i))
	}
	w.run(w.now + 50*time.Millisecond)
	for _, l := range late {
		require.Equal(t, Delivered, l.status)
	}
	require.Len(t, hub.e.peers, 4)
	require.EqualValues(t, 4, hub.e.Stats.Forgotten)
	w.run(w.now + 2*hub.e.cfg.EvictAge)
	back := send(1) // it was forgotten, and does not know
	w.run(w.now + 50*time.Millisecond)
	require.Equal(t, Delivered, back.status)
	require.Equal(t, 1, back.count)
}

// A clock that jumps, or a machine that stood still, makes no peer unresponsive.
func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		w := settledPair(t, nil)
		a := w.nodes[0]
		l := w.model.post(a, 1, Reliable, 300000)
		a.pump()
		w.run(w.now + 300*time.Microsecond)
		a.offset += jump
		a.pump()
		w.run(w.now + time.Second)
		require.Equal(t, Delivered, l.status, "%v", jump)
	}
}

// A peer that is silent is unresponsive after the time that is allowed, not before; the
// others do not notice.
func TestDeadPeer(t *testing.T) {
	w := newWorld(t, 1, 3, simple(2))
	w.nodes[1].silent = true
	dead, alive := w.model.post(w.nodes[0], 1, Reliable, 64), w.model.post(w.nodes[0], 2, Reliable, 64)
	w.nodes[0].pump()
	w.run(w.now + 900*time.Millisecond)
	require.Equal(t, Delivered, alive.status)
	require.Zero(t, dead.status)
	w.run(w.now + 200*time.Millisecond)
	require.Equal(t, Unresponsive, dead.status)
	w.nodes[1].silent = false
	l := w.model.post(w.nodes[0], 1, Reliable, 64)
	w.nodes[0].pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, l.status)
}

// What is lost before there was a round trip is sent again before the peer would be given up,
// however long timers are.
func TestFirstLossWithLongTimers(t *testing.T) {
	cfg := simple(2)
	cfg.MinTimeout = cfg.PeerTimeout / 4
	w := newWorld(t, 1, 2, cfg)
	lost := 0
	w.links = func(from, _, _ int) *link {
		return &link{delay: 50 * time.Microsecond, lose: func(b []byte) bool {
			var k wire.Packet
			if from != 0 || k.Decode(b) != nil || !k.HasPart || lost == 4 {
				return false
			}
			lost++
			return true
		}}
	}
	l := w.model.post(w.nodes[0], 1, Reliable, 8000)
	w.nodes[0].pump()
	w.run(w.now + cfg.PeerTimeout)
	require.Equal(t, 4, lost)
	require.Equal(t, Delivered, l.status)
}

// Only the first greeting carries data: a later one may meet another incarnation.
func TestLaterGreetings(t *testing.T) {
	cfg := simple(1)
	cfg.Key = &wire.Key{1, 1}
	w := newWorld(t, 1, 2, cfg)
	a := w.nodes[0]
	for range 3 {
		w.model.post(a, 1, Reliable, 64)
	}
	a.e.Advance(a.raw())
	first := answers(a)
	require.Len(t, first, 1)
	require.True(t, first[0].HasPart)
	for range 3 {
		w.now += 100 * time.Millisecond
		for range 10 {
			w.now += 10 * time.Millisecond
			a.e.Advance(a.raw())
		}
		later := answers(a)
		require.NotEmpty(t, later)
		require.Equal(t, wire.Hello, later[0].Type)
		require.False(t, later[0].HasPart)
	}
}

// Memory is divided among those that send, and not among those that stopped.
func TestGrants(t *testing.T) {
	e, _ := direct(Config{Config: session.Config{Budget: 120}}, 0)
	for i := range 12 {
		p := e.find(addrOf(i + 1))
		p.Heard.At = e.Now
		e.Enter(&p.Peer)
		require.EqualValues(t, 120/(i+1), e.share(p))
	}
	for i := range 8 {
		e.find(addrOf(i + 20)).Heard.At = e.Now
	}
	e.Now += session.SenderAge / 2
	e.find(addrOf(1)).Heard.At = e.Now
	e.Now += session.SenderAge/2 + 1
	for range 20 {
		e.share(e.peers[0])
	}
	require.EqualValues(t, 120, e.share(e.peers[0]))
	for i := range 500 { // each may send, though it may be a packet at a time
		p := e.find(addrOf(i + 100))
		p.Heard.At = e.Now
		e.Enter(&p.Peer)
	}
	require.EqualValues(t, 0, e.share(e.peers[0]))
}

// A session of which only the peer knows, since its Welcome was lost and no message waits for
// it, is found when the peer sends.
func TestSessionThatOnlyThePeerKnows(t *testing.T) {
	cfg := simple(1)
	cfg.Key = &wire.Key{1, 2}
	w := newWorld(t, 1, 2, cfg)
	lossy := true
	back := &link{delay: 50 * time.Microsecond, lose: func([]byte) bool { return lossy }}
	out := &link{delay: 50 * time.Microsecond}
	w.links = func(from, _, _ int) *link {
		if from == 0 {
			return out
		}
		return back
	}
	m := w.model.post(w.nodes[0], 1, Reliable, 64)
	w.nodes[0].pump()
	w.run(w.now + 1500*time.Millisecond)
	require.Equal(t, 1, m.count)
	require.Equal(t, Unresponsive, m.status)
	lossy = false
	m = w.model.post(w.nodes[1], 0, Reliable, 64)
	w.nodes[1].pump()
	w.run(w.now + 300*time.Millisecond)
	require.Equal(t, Delivered, m.status)
}

// A peer that restarts with its clock set back is told so by a peer that knew its predecessor,
// and is reached: also if it never sends first.
func TestPeerBackInTime(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		cfg := simple(2)
		cfg.Key = key
		w := newWorld(t, 1, 2, cfg)
		a, b := w.nodes[0], w.nodes[1]
		w.model.post(a, 1, Reliable, 100)
		a.pump()
		w.run(w.now + time.Second)
		w.model.crash(b, uint64(time.Hour))
		b.pump()
		late := w.model.post(a, 1, Reliable, 100)
		a.pump()
		w.run(w.now + time.Second)
		require.NotZero(t, late.status)
		next := w.model.post(a, 1, Reliable, 100)
		a.pump()
		w.run(w.now + time.Second)
		require.Equal(t, Delivered, next.status)
		a.e.Greet(&a.e.peers[0].Peer) // is it still there?
		next = w.model.post(a, 1, Reliable, 100)
		a.pump()
		w.run(w.now + time.Second)
		require.Equal(t, Delivered, next.status)
		w.model.end()
	}
}
