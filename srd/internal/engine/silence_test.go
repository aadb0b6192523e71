package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// slowIncast has 32 senders that know a fast way find a slow link in it at once, with a long
// queue: a round trip takes a thousand times as long as before.
func slowIncast(t *testing.T, messages, size int) (share float64, again, probes uint64) {
	const senders = 32
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
		w.model.post(n, 0, Reliable, size)
		n.pump()
		w.run(w.now + 30*time.Millisecond)
	}
	shared.perByte, shared.limit = 800*time.Nanosecond, 3300*time.Millisecond // 10 Mbit/s, 4 MB
	begin := w.now
	for _, n := range w.nodes[1:] {
		for range messages {
			w.model.post(n, 0, Reliable, size)
		}
		n.pump()
	}
	for w.model.open > 0 && w.now < begin+time.Minute {
		w.run(w.now + 10*time.Millisecond)
	}
	last := begin
	for _, l := range w.model.sent {
		require.Equal(t, Delivered, l.status)
		last = max(last, l.settle)
	}
	require.Zero(t, shared.lost)
	for _, n := range w.nodes[1:] {
		again += n.e.Stats.Retransmitted
		probes += n.e.Stats.Probes
	}
	share = float64(senders*messages*size) * shared.perByte.Seconds() / (last - begin).Seconds()
	t.Logf("%.3f of the link, %d packets sent again, %d probes", share, again, probes)
	return share, again, probes
}

// They wait for it, and no peer is given up.
func TestSlowIncast(t *testing.T) {
	for _, c := range []struct {
		messages, size, packets int
		again                   uint64
	}{{60, 3900, 60, 180}, {20, 16000, 100, 200}} {
		share, again, probes := slowIncast(t, c.messages, c.size)
		require.Greater(t, share, 0.9)
		require.Less(t, again, c.again)
		require.Less(t, probes, uint64(32*c.packets/2))
	}
}

// A round trip takes two hundred times as long from one moment on, and one packet is lost: that
// is sent again, and a few others are.
func TestTimersThatWereTooShort(t *testing.T) {
	w := settledPair(t, nil)
	out := pathsFrom(w, func(int) *link { return &link{delay: 50 * time.Microsecond} })
	a := w.nodes[0]
	stream(w, 32, 64, 0, 50*time.Millisecond)
	w.run(w.now + 20*time.Millisecond)
	e := a.e
	again, n := e.Stats.Retransmitted, 0
	for _, l := range out {
		l.delay = 20 * time.Millisecond
		l.lose = func(b []byte) bool { n++; return n == 10 }
	}
	var took []time.Duration
	w.model.onSettled = func(l *letter) { took = append(took, l.settle-l.sentAt) }
	for range 32 {
		w.model.post(a, 1, Reliable, 64)
	}
	a.pump()
	w.run(w.now + 300*time.Millisecond)
	require.Zero(t, w.model.open)
	t.Logf("%d packets sent again", e.Stats.Retransmitted-again)
	require.LessOrEqual(t, e.Stats.Retransmitted-again, uint64(8))
	slices.Sort(took)
	require.Less(t, took[30], 25*time.Millisecond, "all but the one that was lost")
	require.Less(t, took[31], 150*time.Millisecond)
	w.model.end()
}

// What a timer took for lost is under way again only if it can be.
func TestUnlose(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	p.grant = 100
	for range 6 {
		m := w.model.post(a, 1, NoRetransmit, 64)
		e.messages[uint32(m.handle)].now = false
	}
	var sent []time.Duration
	for a.e.Wait() == 0 { // one by one
		var b [wire.MaxHeaders]byte
		var o Out
		if !e.Next(b[:], &o) {
			break
		}
		sent = append(sent, e.Now)
		w.now += 100 * time.Microsecond
		e.Advance(a.raw())
	}
	require.Len(t, sent, 6)
	f := p.tx[NoRetransmit]
	l := f.live
	paths := e.network(p).paths[:]
	lose := func() {
		for i := range l.subs {
			for s := &l.subs[i]; !s.empty(); {
				l.ring[s.head].late = true
				e.lose(f, l.number(f, s.head))
			}
		}
	}
	states := func() (out []uint8) {
		for s := f.una; s != f.nxt; s++ {
			out = append(out, l.at(s).state)
		}
		return out
	}
	lose()
	require.Zero(t, p.flying)
	require.True(t, l.at(f.una).cancel, "the receiver would be asked for it")
	l.at(f.una + 5).late = false // something overtook it
	e.restoreLost(p, sent[2])
	require.Equal(t, []uint8{lost, lost, flying, flying, flying, lost}, states())
	l.at(f.una + 5).late = true
	e.restoreLost(p, sent[2])
	require.Equal(t, []uint8{lost, lost, flying, flying, flying, flying}, states())
	require.EqualValues(t, 4, p.flying)
	require.EqualValues(t, 4, paths[0].flying+paths[1].flying)
	require.False(t, l.at(f.una+2).cancel)
	require.True(t, l.at(f.una+1).cancel)
	e.restoreLost(p, 0)
	for i := range 2 {
		last := time.Duration(0)
		for k := l.subs[i].head; k != none; k = l.ring[k].next {
			require.Less(t, last, l.ring[k].sent, "in the order of sending")
			last = l.ring[k].sent
		}
		require.Equal(t, e.Now, l.subs[i].armed)
	}

	lose()
	paths[0].retired = true
	e.restoreLost(p, 0)
	for s := f.una; s != f.nxt; s++ {
		k := l.at(s)
		require.Equal(t, k.path == 0, k.state == lost)
	}
	paths[0].retired = false
	e.resend(p) // a session has begun in which it has not arrived
	e.restoreLost(p, 0)
	require.Equal(t, slices.Repeat([]uint8{lost}, 6), states())
}

// The echo of a probe ends a silence as a response does, and shows how long all had to wait.
func TestEchoAfterSilence(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	n := e.network(p)
	w.model.post(a, 1, Reliable, 64)
	require.Len(t, answers(a), 1)
	f := p.tx[Reliable]
	sent := e.Stamp()
	w.now += 20 * time.Millisecond
	e.Advance(a.raw())
	require.Equal(t, uint8(lost), f.live.at(f.una).state)
	n.silent = 2
	e.onEcho(p, &wire.Packet{Type: wire.Echo, Echo: wire.Echoed{Path: 0, Stamp: sent}})
	require.Equal(t, uint8(flying), f.live.at(f.una).state)
	require.Zero(t, n.silent)
	measured := 0
	for i := range e.cfg.Paths {
		if x := &n.paths[i]; x.SRTT > 0 {
			measured++
			require.GreaterOrEqual(t, x.RTTVar, 7*time.Millisecond)
		}
	}
	require.NotZero(t, measured)

	n.silent = 2 // what takes no longer than a timer allows for does not change it
	n.paths[1].SRTT, n.paths[1].RTTVar = 10*time.Millisecond, 5*time.Millisecond
	w.now += time.Microsecond
	e.Advance(a.raw())
	e.onEcho(p, &wire.Packet{Type: wire.Echo, Echo: wire.Echoed{Path: 0, Stamp: sent + 1}})
	require.Zero(t, n.silent)
	require.Equal(t, 5*time.Millisecond, n.paths[1].RTTVar)
}

// A part that comes after the receiver was asked for another one of its message is refused: not
// for want of a buffer.
func TestRefusedForAnotherPart(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	p.grant = 100
	m := w.model.post(a, 1, NoRetransmit, 2*e.fragment)
	require.Len(t, answers(a), 2)
	f := p.tx[NoRetransmit]
	e.lose(f, f.una+1)
	asked := answers(a)
	require.Len(t, asked, 1)
	require.True(t, asked[0].Part.Cancel)
	e.onResponse(p, &wire.Response{Service: NoRetransmit, Base: f.nxt, Floor: f.una, Grant: 100, NRefused: 1,
		Refused: [wire.RefusedWords]uint64{3}})
	require.Equal(t, Retransmit, m.status)
}

// In silence one packet at a time is sent again, ever later. With the first reply, to a
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
			w.model.post(a, 1, Reliable, 600)
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
// the last reply.
func TestSilenceIsCountedOnce(t *testing.T) {
	w := settledPair(t, nil)
	e := w.nodes[0].e
	p := e.peers[0]
	n := e.network(p)
	e.endSilence(p)
	w.run(w.now + 5*time.Millisecond)
	e.Advance(w.nodes[0].raw())
	for range 8 {
		e.unanswered(n, n.answered+time.Millisecond)
	}
	require.EqualValues(t, 1, n.silent)
	e.unanswered(n, e.Now)
	require.EqualValues(t, 2, n.silent)
	require.NotZero(t, e.Wait())
	e.endSilence(p)
	require.Zero(t, e.Wait(), "there may be more to do")
	e.unanswered(n, n.answered-time.Millisecond)
	require.Zero(t, n.silent)
}

// The driver is told of each quarter of PeerTimeout that a peer with something under way is
// silent for, and of no peer that responds.
func TestSilentPeers(t *testing.T) {
	cfg := simple(2)
	var told []time.Duration
	w := newWorld(t, 1, 3, cfg)
	cfg = w.nodes[0].e.cfg
	cfg.Silent = func(peer wire.Addr) {
		require.Equal(t, addrOf(1), peer)
		told = append(told, w.now)
	}
	w.nodes[0].e = New(cfg)
	send := func() *letter {
		l := w.model.post(w.nodes[0], 1, Reliable, 64)
		w.model.post(w.nodes[0], 2, Reliable, 64)
		w.nodes[0].pump()
		w.run(w.now + 2*time.Second)
		return l
	}
	require.Equal(t, Delivered, send().status)
	require.Empty(t, told)
	w.nodes[1].silent = true
	for range 2 {
		told = nil
		start := w.now
		require.Equal(t, Unresponsive, send().status)
		require.Len(t, told, 3)
		for i, at := range told {
			require.InDelta(t, time.Duration(i+1)*250*time.Millisecond, at-start, float64(50*time.Millisecond))
		}
	}
}
