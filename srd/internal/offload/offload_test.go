package offload

import (
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// greeted are two nodes that have a session.
func greeted(t *testing.T, cfg Config) *world {
	w := newWorld(t, 1, 2, cfg)
	l := w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
	return w
}

// of returns the state that a node has of another one.
func (w *world) of(a, b int) *peer {
	m := w.nodes[a].m
	return m.find(addrOf(b))
}

// packet encodes one from a node to another, by their session.
func (w *world) packet(from, to int, k wire.Packet, body []byte) []byte {
	p := w.of(from, to)
	k.Token, k.VTag = p.Remote, p.Ours
	if k.Type == 0 {
		k.Type = wire.Flow
	}
	b := make([]byte, wire.MaxHeaders)
	return append(b[:k.Encode(b)], body...)
}

// A receiver without buffers is tried for a while, and then reported: messages are
// refused, and none of them comes when there are buffers again.
func TestNoBuffers(t *testing.T) {
	cfg := simple()
	cfg.PeerTimeout = 400 * time.Millisecond // which has it asked early whether it lives
	cfg.EvictAge = time.Minute
	w := greeted(t, cfg)
	n := w.nodes[1]
	n.receives = 0
	posts, start := w.posts, w.Now
	var all []*letter
	for service := engine.Reliable; service <= engine.NoRetransmit; service++ {
		all = append(all, w.send(w.nodes[0], 1, uint8(service), 2000))
	}
	settled := func() bool {
		for _, l := range all {
			if l.status == 0 {
				return false
			}
		}
		return true
	}
	for !settled() && w.Now < start+time.Minute {
		w.Run(w.Now + time.Millisecond)
	}
	require.Less(t, w.Now-start, time.Second)
	require.Greater(t, w.Now-start, 50*time.Millisecond)
	require.Less(t, w.posts-posts, uint64(200))
	require.Equal(t, engine.Refused, all[0].status)
	require.Equal(t, engine.Refused, all[1].status)
	require.Equal(t, engine.Retransmit, all[2].status)
	n.receives = 64
	next := w.send(w.nodes[0], 1, engine.Ordered, 2000)
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, next.status)
	w.end()
}

// An address without an endpoint is found out soon, and not by a peer's silence.
func TestGone(t *testing.T) {
	w := greeted(t, simple())
	w.nodes[1].gone = true
	posts := w.posts
	l := w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + 100*time.Millisecond)
	require.Equal(t, engine.Unresponsive, l.status, w.pair(0, 1))
	require.Less(t, w.posts-posts, uint64(10))
	// One that is away for a moment is not gone.
	w.nodes[1].gone = false
	l = w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + 100*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.nodes[1].gone = true
	l = w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + time.Millisecond)
	w.nodes[1].gone = false
	w.Run(w.Now + 100*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// A program that stands still while its device takes packets is unresponsive after the
// peer's timeout; what it took before it goes on was perhaps delivered.
func TestAsleep(t *testing.T) {
	w := greeted(t, simple())
	w.nodes[1].asleep = true
	l := w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + 4*time.Second)
	require.Zero(t, l.status)
	w.Run(w.Now + 2*time.Second)
	require.Equal(t, engine.Unresponsive, l.status, w.pair(0, 1))
	w.nodes[1].wake()
	w.Run(w.Now + 20*time.Second)
	require.Equal(t, 1, l.count)
	l = w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// Senders have no more under way than there are buffers for, however much they have to
// send: no packet finds none.
func TestCredit(t *testing.T) {
	w := newWorld(t, 1, 6, simple())
	for range 2 { // the receiver knows how many there are, then they know
		for _, n := range w.nodes[1:] {
			w.send(n, 0, engine.Reliable, 20)
		}
		w.Run(w.Now + 10*time.Millisecond)
	}
	for _, n := range w.nodes[1:] {
		for range 20 {
			w.send(n, 0, engine.Reliable, 20_000)
		}
	}
	w.Run(w.Now + time.Minute)
	for _, n := range w.nodes {
		require.Zero(t, n.m.Stats.Timeouts)
	}
	require.Equal(t, 110, w.results[engine.Delivered])
	w.end()
}

// Sessions begin at both ends at once, and what follows at once is not lost.
func TestWelcomeFirst(t *testing.T) {
	for seed := range uint64(300) {
		cfg := simple()
		cfg.PeerTimeout = time.Minute // no check comes in time
		if seed%2 == 0 {
			cfg.Key = &wire.Key{1, seed}
		}
		w := newWorld(t, seed, 2, cfg)
		w.After(w.some(w.jitter), func() { w.send(w.nodes[0], 1, engine.Reliable, 2000) })
		w.After(w.some(w.jitter), func() { w.send(w.nodes[1], 0, engine.Reliable, 2000) })
		w.Run(w.Now + 50*time.Millisecond)
		require.Equal(t, 2, w.results[engine.Delivered], "seed %d", seed)
		w.end()
	}
}

// What is not where the device said is sent again, once the peer has been asked.
func TestLanded(t *testing.T) {
	w := greeted(t, simple())
	w.lose = 1
	l := w.send(w.nodes[0], 1, engine.Ordered, 2000)
	w.Run(w.Now + 10*time.Millisecond)
	w.lose = 0
	next := w.send(w.nodes[0], 1, engine.Ordered, 20)
	w.Run(w.Now + 3*time.Second)
	require.Equal(t, engine.Delivered, l.status)
	require.Equal(t, engine.Delivered, next.status)
	require.Zero(t, w.of(0, 1).underWay())
	w.end()
}

// A word that did not arrive is told again, soon.
func TestWordAgain(t *testing.T) {
	w := greeted(t, simple())
	w.hurry = true
	took := w.nodes[0].receives
	w.nodes[0].receives = 0
	l := w.send(w.nodes[0], 1, engine.Reliable, 20)
	w.Run(w.Now + 5*time.Millisecond)
	require.Equal(t, 1, l.count)
	w.nodes[0].receives = took
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// A message that its sender waits for has a response at once, and others in company.
func TestHurry(t *testing.T) {
	cfg := simple()
	cfg.AckDelay, cfg.PeerTimeout = time.Second, time.Minute
	w := newWorld(t, 1, 2, cfg)
	w.hurry = true
	l := w.send(w.nodes[0], 1, engine.Ordered, 2000)
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	l = w.send(w.nodes[0], 1, engine.Ordered, 20)
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// More messages than the receiver's mask has wait for their numbers.
func TestManyMessages(t *testing.T) {
	cfg := simple()
	cfg.Budget = 1000
	w := newWorld(t, 1, 2, cfg)
	w.nodes[1].receives = 2000
	w.nodes[1].refuse = 0.1
	for range 2000 {
		w.send(w.nodes[0], 1, engine.Reliable, 20)
	}
	w.Run(w.Now + time.Second)
	require.Equal(t, 2000, w.results[engine.Delivered]+w.results[engine.Refused])
	require.NotZero(t, w.results[engine.Refused])
	w.nodes[1].refuse = 0
	w.send(w.nodes[0], 1, engine.Reliable, 20_000)
	w.Run(w.Now + 10*time.Millisecond) // it has credit again
	w.nodes[1].asleep = true
	var all []*letter
	for range wire.Window + 200 {
		all = append(all, w.send(w.nodes[0], 1, engine.Reliable, 20))
	}
	w.Run(w.Now + 100*time.Millisecond)
	f := w.nodes[0].m.find(addrOf(1)).tx[engine.Reliable]
	require.EqualValues(t, wire.Window, f.nxt-f.una)
	w.nodes[1].wake()
	w.Run(w.Now + time.Second)
	for _, l := range all {
		require.Equal(t, engine.Delivered, l.status)
	}
	w.end()
}

// An incarnation with its clock set back sends first: what it sent before it knew comes,
// too.
func TestSenderBackInTime(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed, 2, simple())
		l := w.send(w.nodes[1], 0, engine.Reliable, 20)
		w.Run(w.Now + time.Second)
		require.Equal(t, engine.Delivered, l.status)
		w.crash(w.nodes[1], uint64(time.Hour))
		w.send(w.nodes[0], 1, engine.Reliable, 20)
		l = w.send(w.nodes[1], 0, engine.Reliable, 20)
		w.Run(w.Now + time.Second)
		require.Equal(t, engine.Delivered, l.status)
		require.Zero(t, w.nodes[1].m.mislaid)
		w.end()
	}
}

// A greeting that checks a peer is replied to with all results again: a response that was not
// where the device said comes with the next one, and no message is sent again for it.
func TestAnswerLost(t *testing.T) {
	w := greeted(t, simple())
	w.hurry = true
	l := w.send(w.nodes[0], 1, engine.Reliable, 20)
	for l.count == 0 {
		w.lose = 0
		w.Run(w.Now + time.Microsecond)
		w.lose = 1
	}
	w.Run(w.Now + 10*time.Millisecond)
	require.Zero(t, l.status)
	w.lose = 0
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
	require.Zero(t, w.nodes[0].m.mislaid)
}

// A Welcome that comes when no message waits for it any more is as good: the peer relies on it.
func TestLateWelcome(t *testing.T) {
	cfg := simple()
	cfg.Key = &wire.Key{1, 2}
	w := newWorld(t, 1, 2, cfg)
	a, b := w.nodes[0], w.nodes[1]
	w.Run(w.Now + time.Millisecond)
	a.receives = 0
	l := w.send(a, 1, engine.Reliable, 20)
	w.Run(w.Now + 5100*time.Millisecond)
	require.Equal(t, engine.Unresponsive, l.status)
	a.receives = 64
	l = w.send(b, 0, engine.Reliable, 20)
	w.Run(w.Now + 200*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	require.Zero(t, b.m.mislaid)
}

// An incarnation with its clock set back is greeted before it knows, and sends by that
// session: its messages come when it does, and the session lasts.
func TestGreetedBackInTime(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	w.crash(b, uint64(time.Hour))
	w.send(a, 1, engine.Reliable, 20)
	for len(b.m.peers) == 0 || b.m.peers[0].State != session.Established {
		w.Run(w.Now + 10*time.Microsecond)
	}
	l := w.send(b, 0, engine.Reliable, 20)
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
	require.Zero(t, b.m.mislaid)
	b.asleep = true
	l = w.send(a, 1, engine.Reliable, 20)
	w.Run(w.Now + 500*time.Millisecond) // in which it is asked
	b.wake()
	w.Run(w.Now + 100*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.lose = 1
	l = w.send(a, 1, engine.Reliable, 20)
	w.Run(w.Now + 10*time.Millisecond)
	w.lose = 0
	w.Run(w.Now + 3*time.Second)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// A clock that jumps says nothing of a peer.
func TestClockJumps(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	b.asleep = true
	l := w.send(a, 1, engine.Reliable, 20)
	for _, by := range []time.Duration{time.Hour, -2 * time.Hour} {
		w.Run(w.Now + 10*time.Millisecond)
		a.offset += by
		a.pump()
		require.Zero(t, l.status)
	}
	b.wake()
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}

// What is cancelled in time has that status, and is not delivered.
func TestCancel(t *testing.T) {
	w := greeted(t, simple())
	w.lose = 1
	l := w.send(w.nodes[0], 1, engine.Reliable, 500)
	w.Run(w.Now + 10*time.Millisecond)
	w.lose = 0
	w.nodes[0].do(l.life, func() { w.nodes[0].m.Cancel(l.handle) })
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Cancelled, l.status)
	unsent := w.send(w.nodes[0], 1, engine.Ordered, 20) // what follows is not kept waiting
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Delivered, unsent.status)
	require.Zero(t, l.count)
	w.end()
}

// What an earlier incarnation sent, or greeted with, changes nothing in the session of the
// one that lives.
func TestEarlierIncarnation(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		cfg := simple()
		cfg.Key = key
		w := newWorld(t, 1, 2, cfg)
		a, b := w.nodes[0], w.nodes[1]
		w.send(b, 0, engine.Reliable, 20)
		w.Run(w.Now + time.Second)
		p := w.of(0, 1)
		late := w.packet(1, 0, wire.Packet{HasPart: true, Part: wire.Part{Seq: 1, Floor: 1, Total: 20, Fragment: 100}}, make([]byte, 20))
		hello := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: addrOf(1), Epoch: p.Epoch, Token: p.Remote, Stamp: p.Stamp, Limits: anyLimits}}
		hello.Greeting.Cookie = a.m.Cookie(&hello.Greeting)
		greeting := make([]byte, wire.MaxHeaders)
		greeting = greeting[:hello.Encode(greeting)]
		if key != nil {
			to := addrOf(0)
			wire.SetMAC(greeting, wire.Seal(*key, &to, greeting, nil))
		}
		w.crash(b, 0)
		w.send(b, 0, engine.Reliable, 20)
		w.Run(w.Now + time.Second)
		epoch, before := p.Epoch, a.m.Stats
		a.m.Receive(addrOf(1).QPN, late)
		a.m.Receive(addrOf(1).QPN, greeting)
		require.Equal(t, before.Delivered, a.m.Stats.Delivered)
		require.Equal(t, before.OldEpoch+2, a.m.Stats.OldEpoch)
		require.Equal(t, epoch, p.Epoch)
		l := w.send(b, 0, engine.Reliable, 20)
		w.Run(w.Now + time.Second)
		require.Equal(t, engine.Delivered, l.status)
		require.Equal(t, 1, l.count)
		w.end()
	}
}

// A message has one reply, however long it is; so have messages that follow each other
// closely. Credit is told by the way, a quarter of it at a time.
func TestFewAnswers(t *testing.T) {
	w := greeted(t, simple())
	before := w.nodes[1].m.Stats.Responses
	w.send(w.nodes[0], 1, engine.Reliable, 50_000) // 177 packets
	for range 20 {
		w.send(w.nodes[0], 1, engine.Reliable, 20)
	}
	w.Run(w.Now + time.Second)
	require.Less(t, w.nodes[1].m.Stats.Responses-before, uint64(50))
	w.end()
}

// Unauthenticated peers cost nothing that stays, and few replies.
func TestUnauthenticatedPeers(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		cfg := simple()
		cfg.Key = key
		w := newWorld(t, 1, 1, cfg)
		n := w.nodes[0]
		n.m.Advance(n.raw())
		answers := 0
		var b [wire.MaxHeaders]byte
		for i := range 10000 {
			from := addrOf(i + 10)
			hello := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: from, Epoch: 5, Token: 6, Stamp: uint64(i), Cookie: uint64(i), Limits: anyLimits}}
			n.m.Receive(from.QPN, b[:hello.Encode(b[:])])
			hello.Greeting.Stamp = n.m.Wall() + 1000 // with a key, a guess of its code
			hello.Greeting.MAC = uint64(i)
			n.m.Receive(from.QPN, b[:hello.Encode(b[:])])
			junk := wire.Packet{Type: wire.Flow, Token: uint64(i), HasPart: true, Part: wire.Part{Fragment: 1}}
			n.m.Receive(from.QPN, b[:junk.Encode(b[:])])
			var o engine.Out
			for n.m.Next(0, b[:], &o) {
				answers++
				n.m.Completed(0, Landed)
			}
		}
		require.Empty(t, n.m.peers)
		require.LessOrEqual(t, answers, session.ReplyBurst)
	}
}

// A greeting from elsewhere than it says, and packets that name a peer's token but come
// from elsewhere, are refused.
func TestSources(t *testing.T) {
	w := greeted(t, simple())
	n := w.nodes[1]
	body := make([]byte, 20)
	k := wire.Packet{HasPart: true, Part: wire.Part{Seq: 1, Floor: 1, Total: 20, Fragment: 100}}
	before := n.m.Stats
	n.m.Receive(addrOf(0).QPN+1, w.packet(0, 1, k, body))
	require.Equal(t, before.WrongSource+1, n.m.Stats.WrongSource)
	hello := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: addrOf(7), Epoch: 5, Token: 6, Stamp: 7, Limits: anyLimits}}
	var b [wire.MaxHeaders]byte
	n.m.Receive(addrOf(0).QPN, b[:hello.Encode(b[:])])
	require.Equal(t, before.WrongSource+2, n.m.Stats.WrongSource)
	require.Equal(t, before.Delivered, n.m.Stats.Delivered)
	for i, change := range []func(*wire.Packet){ // a greeting has nothing else
		func(k *wire.Packet) { k.HasCredit = true },
		func(k *wire.Packet) { k.HasResponse = true },
		func(k *wire.Packet) { k.HasPart, k.Part.Fragment = true, 1 },
	} {
		k := hello
		change(&k)
		n.m.Receive(addrOf(7).QPN, b[:k.Encode(b[:])])
		require.Equal(t, before.WrongSource+3+uint64(i), n.m.Stats.WrongSource)
	}
}

// What an honest peer never says changes nothing: no status, no message, no memory.
func TestLies(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	b.asleep = true
	l := w.send(a, 1, engine.Reliable, 20)
	w.Run(w.Now + 10*time.Millisecond)
	f := w.of(0, 1).tx[engine.Reliable]
	require.Equal(t, uint32(1), f.nxt-f.una)
	for name, r := range map[string]wire.Response{
		"a number that was not sent":    {Base: f.nxt + 1, Floor: f.una},
		"a floor above what is settled": {Base: f.nxt, Floor: f.nxt},
		"another flow":                  {Service: engine.Ordered, Base: 9},
	} {
		a.m.Receive(addrOf(1).QPN, w.packet(1, 0, wire.Packet{HasResponse: true, Response: r}, nil))
		require.Zero(t, l.status, name)
	}
	used, delivered := a.used, a.m.Stats.Delivered
	for name, p := range map[string]wire.Part{
		"a number far ahead":      {Seq: wire.Window + 1, Floor: 1, Total: 1, Fragment: 1},
		"a number below the rest": {Seq: 1, Floor: 2, Total: 1, Fragment: 1},
		"pieces too small":        {Seq: 0, Total: 1000, Fragment: 1},
		"a message too long":      {Seq: 1, Total: 1 << 30, Fragment: 1000},
	} {
		a.m.Receive(addrOf(1).QPN, w.packet(1, 0, wire.Packet{HasPart: true, Part: p}, make([]byte, p.Length())))
		require.Equal(t, used, a.used, name)
		require.Equal(t, delivered, a.m.Stats.Delivered, name)
	}
	b.wake()
	w.Run(w.Now + time.Second)
	require.Equal(t, engine.Delivered, l.status)
}

// Memory of a message goes back when its sender gives it up: by a word of its own, or by
// what it says with the next one.
func TestGivenUp(t *testing.T) {
	w := greeted(t, simple())
	a := w.nodes[0]
	part := func(p wire.Part) {
		p.Fragment = 100
		a.m.Receive(addrOf(1).QPN, w.packet(1, 0, wire.Packet{HasPart: true, Part: p}, make([]byte, p.Length())))
		a.pump()
	}
	part(wire.Part{Seq: 0, Total: 200})
	require.Equal(t, 200, a.used)
	part(wire.Part{Seq: 0, Cancel: true})
	require.Zero(t, a.used)
	part(wire.Part{Seq: 1, Total: 300})
	part(wire.Part{Seq: 2, Total: 400})
	require.Equal(t, 700, a.used)
	part(wire.Part{Seq: 3, Floor: 2, Total: 500})
	require.Equal(t, 900, a.used)
	w.Run(w.Now + 15*time.Second)
	require.Zero(t, a.used, "it fell silent")
	part(wire.Part{Seq: 3, Floor: 2, Index: 1, Total: 500})
	require.Zero(t, a.used, "what follows is late")
}

// Pieces of one number that are of different messages are not put together.
func TestMixedPieces(t *testing.T) {
	w := greeted(t, simple())
	a := w.nodes[0]
	piece := func(p wire.Part) {
		p.Seq, p.Fragment = 0, 100
		a.m.Receive(addrOf(1).QPN, w.packet(1, 0, wire.Packet{HasPart: true, Part: p}, make([]byte, p.Length())))
	}
	piece(wire.Part{Total: 200})
	before := a.m.Stats.Bogus
	piece(wire.Part{Total: 300, Index: 1})
	require.Equal(t, before+1, a.m.Stats.Bogus)
	require.Zero(t, a.m.Stats.Delivered)
}

// A peer of an address and its successor there are two.
func TestRestart(t *testing.T) {
	for _, back := range []uint64{0, uint64(time.Hour)} {
		w := greeted(t, simple())
		w.nodes[1].asleep = true
		l := w.send(w.nodes[0], 1, engine.Reliable, 20)
		w.Run(w.Now + 10*time.Millisecond)
		w.crash(w.nodes[1], back)
		late := w.packet(0, 1, wire.Packet{HasPart: true, Part: wire.Part{Seq: 1, Floor: 1, Total: 20, Fragment: 100}}, make([]byte, 20))
		w.nodes[1].m.Receive(addrOf(0).QPN, late)
		require.EqualValues(t, 1, w.nodes[1].m.Stats.WrongToken)
		w.Run(w.Now + 2*time.Second)
		require.Equal(t, engine.Unresponsive, l.status, w.pair(0, 1))
		require.Zero(t, l.count)
		w.nodes[1].m.Receive(addrOf(0).QPN, late)
		require.Zero(t, w.of(0, 1).underWay(), "what the first one had is not the second one's")
		w.end()
	}
}

// Whatever a peer says that has a session: nothing panics, each message has one status,
// and all memory comes back.
func TestHostilePeer(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		h := new(counter)
		m := New(Config{Config: session.Config{Addr: addrOf(0), Wall: 5, MTU: 400, MaxMessage: 5000}, Host: h, Slots: 16})
		p := m.find(addrOf(1))
		m.Renew(&p.Peer, 9, 9, anyLimits)
		raw := time.Duration(0)
		sent := 0
		var b [wire.MaxHeaders]byte
		busy := make(map[int]bool)
		for range 2000 {
			raw += time.Duration(r.IntN(300)) * time.Microsecond
			m.Advance(raw)
			if r.IntN(5) == 0 {
				service := uint8(r.IntN(wire.Services))
				handle, err := m.Send(addrOf(1), engine.Message{Service: service, Len: r.IntN(200), Parts: r.IntN(2) == 0})
				require.NoError(t, err)
				sent++
				if r.IntN(5) == 0 {
					m.Cancel(handle)
				}
			}
			k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, RespondNow: r.IntN(2) == 0}
			number := func(near uint32) uint32 { return near + r.Uint32N(20) - 10 }
			service := uint8(r.IntN(wire.Services))
			var una, nxt, base uint32
			if f := p.tx[service]; f != nil {
				una, nxt = f.una, f.nxt
			}
			if f := p.rx[service]; f != nil {
				base = f.base
			}
			if k.HasCredit = r.IntN(2) == 0; k.HasCredit {
				k.Credit = wire.Credit{Taken: number(p.posted), Grant: uint16(r.IntN(50))}
			}
			if k.HasResponse = r.IntN(2) == 0; k.HasResponse {
				k.Response = wire.Response{Service: service, Base: number(nxt), Floor: number(una), NSeen: uint8(r.IntN(5)), NRefused: uint8(r.IntN(5))}
				for i := range k.Response.Seen {
					k.Response.Seen[i], k.Response.Refused[i] = r.Uint64(), r.Uint64()
				}
			}
			if k.HasPart = r.IntN(2) == 0 || !k.HasCredit && !k.HasResponse; k.HasPart {
				k.Part = wire.Part{Service: service, Cancel: r.IntN(5) == 0, Seq: number(base + 10), Floor: number(base), Total: r.Uint32N(6000), Fragment: uint16(1 + r.IntN(300))}
				k.Part.Index = r.Uint32N(wire.Count(k.Part.Total, k.Part.Fragment))
			}
			switch r.IntN(50) {
			case 0:
				k = wire.Packet{Type: wire.Challenge, Token: p.Local, Challenge: wire.Challenged{Cookie: 7, Known: uint64(r.IntN(20))}}
			case 1:
				k = wire.Packet{Type: wire.Welcome, Token: p.Local, Welcome: wire.Granted{Epoch: uint64(1 + r.IntN(20)), Token: uint64(1 + r.IntN(3)), Hello: p.Mine, Limits: anyLimits}}
			}
			n := k.Encode(b[:])
			packet := append(append([]byte(nil), b[:n]...), make([]byte, k.Part.Length())...)
			if !k.HasPart {
				packet = packet[:n]
			}
			m.Receive(p.Addr.QPN, packet)
			for slot := range 16 {
				var o engine.Out
				if busy[slot] && r.IntN(3) == 0 {
					m.Completed(slot, Outcome(r.IntN(5)))
					busy[slot] = false
				}
				if !busy[slot] {
					busy[slot] = m.Next(slot, b[:], &o)
				}
			}
		}
		for range 100 { // it falls silent
			raw += m.cfg.PeerTimeout / 10
			m.Advance(raw)
			for slot := range 16 {
				var o engine.Out
				if busy[slot] {
					m.Completed(slot, Landed)
				}
				busy[slot] = m.Next(slot, b[:], &o)
			}
		}
		require.Equal(t, sent, h.settled, "seed %d", seed)
		require.Zero(t, h.out, "seed %d", seed)
	}
}

// TestLongResponseGoesAlone: one that has no room beside a full part does not wait until
// there are no more of them.
func TestLongResponseGoesAlone(t *testing.T) {
	m := New(Config{Config: session.Config{Addr: addrOf(0), Wall: 5, MTU: 400}, Host: new(counter), Slots: 64})
	p := m.find(addrOf(1))
	m.Renew(&p.Peer, 9, 9, anyLimits)
	p.Welcome, p.grant = false, 64
	b := make([]byte, wire.MaxHeaders)
	k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, RespondNow: true, HasPart: true, Part: wire.Part{Seq: 330, Fragment: 100}}
	m.Receive(addrOf(1).QPN, b[:k.Encode(b)])
	for range 40 {
		_, err := m.Send(addrOf(1), engine.Message{Len: m.fragment})
		require.NoError(t, err)
	}
	var o engine.Out
	parts, at := 0, -1
	for slot := 0; m.Next(slot, b, &o); slot++ {
		require.NoError(t, k.Decode(append(append([]byte(nil), b[:o.Headers]...), make([]byte, o.Length)...)))
		if k.HasPart {
			parts++
		}
		if k.HasResponse {
			require.False(t, k.HasPart)
			require.EqualValues(t, 330%64, bits.TrailingZeros64(k.Response.Seen[330/64]))
			at = slot
		}
	}
	require.Equal(t, 1, at)
	require.Equal(t, 40, parts)

	// The next one is short, and goes with a part.
	k = wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, RespondNow: true, HasPart: true, Part: wire.Part{Seq: 331, Floor: 331, Fragment: 100}}
	m.Receive(addrOf(1).QPN, b[:k.Encode(b)])
	_, err := m.Send(addrOf(1), engine.Message{Len: m.fragment})
	require.NoError(t, err)
	require.True(t, m.Next(50, b, &o))
	require.NoError(t, k.Decode(append(append([]byte(nil), b[:o.Headers]...), make([]byte, o.Length)...)))
	require.True(t, k.HasPart)
	require.True(t, k.HasResponse)
}

// Nothing is allocated for a message once there is memory for all of them.
func TestAllocations(t *testing.T) {
	m := New(Config{Config: session.Config{Addr: addrOf(0), Wall: 5}, Host: new(counter)})
	p := m.find(addrOf(1))
	m.Renew(&p.Peer, 9, 9, anyLimits)
	var b [wire.MaxHeaders]byte
	var o engine.Out
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := m.Send(addrOf(1), engine.Message{Len: 100})
		if err != nil || !m.Next(0, b[:], &o) {
			t.Fatal("nothing is sent")
		}
		m.Completed(0, Landed)
		f := p.tx[0]
		m.onCredit(p, &wire.Credit{Taken: p.posted, Grant: 10})
		m.onResponse(p, &wire.Response{Base: f.nxt, Floor: f.una}, 0)
	}))
	require.Len(t, m.messages, 1, "its place is used again")
}

// counter is a host that takes everything, unless it is full.
type counter struct {
	settled   int
	last      engine.Result            // of those
	statuses  map[uint64]engine.Status // by tag, if not nil
	delivered int
	out       int // bytes of Room that did not come back
	full      bool
}

func (h *counter) Soon(int) bool { return false }
func (h *counter) Room(size int) []byte {
	if h.full {
		return nil
	}
	h.out += size
	return make([]byte, size)
}

func (h *counter) Deliver(d *engine.Delivery, owned bool) bool {
	if owned {
		h.out -= len(d.Bytes)
	} else if h.full {
		return false
	}
	h.delivered++
	return true
}
func (h *counter) Drop(b []byte) { h.out -= len(b) }
func (h *counter) Settled(r *engine.Result) {
	h.settled, h.last = h.settled+1, *r
	if h.statuses != nil {
		h.statuses[r.Tag] = r.Status
	}
}
func (h *counter) PartSettled(uint64, int, engine.Status) {}
func (h *counter) Pressure() uint8                        { return 0 }
