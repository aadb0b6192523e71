package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// checkTurns checks the state of turns: the packets granted, and the peers that wait.
func (e *Engine) checkTurns(t testing.TB) {
	granted, waiting := 0, 0
	for _, p := range e.peers {
		if p.net == nil || p.State == session.Vacant {
			continue
		}
		granted += int(p.net.turn.left)
		if p.net.turn.waits {
			waiting++
		}
	}
	n, last := 0, none
	for s := e.senders.waiting.head; n < e.senders.length; n, s = n+1, e.peers[s].net.turn.next {
		last = s
	}
	if granted != e.senders.granted || waiting != n || n > 0 && last != e.senders.waiting.tail {
		t.Fatalf("%d packets of turns, counted as %d; %d peers wait, of whom %d are in the queue", granted, e.senders.granted, waiting, n)
	}
}

// crowd is a node that grants few packets, and many that know it, by links of their own.
func crowd(t *testing.T, senders, budget int, f func(*Config)) (w *world, out, back []*link) {
	cfg := simple(2)
	cfg.Budget = budget
	if f != nil {
		f(&cfg)
	}
	w = newWorld(t, 1, senders+1, cfg)
	for range w.nodes {
		out = append(out, &link{delay: 50 * time.Microsecond})
		back = append(back, &link{delay: 50 * time.Microsecond})
	}
	w.links = func(from, to, _ int) *link {
		if to == 0 {
			return out[from]
		}
		return back[to]
	}
	for i := range senders {
		w.model.post(w.nodes[i+1], 0, Reliable, 64)
		w.nodes[i+1].pump()
		w.run(w.now + time.Millisecond)
	}
	require.Zero(t, w.model.open)
	return w, out, back
}

// crowded is a crowd of 40 of which all have sent a packet just now, and the engine that has heard them.
func crowded(t *testing.T, budget int) (*world, *Engine) {
	w, _, _ := crowd(t, 40, budget, nil)
	e := w.nodes[0].e
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	require.True(t, e.crowded())
	return w, e
}

// underWay is how many packets of a node's first peer are.
func underWay(n *node) int { return int(n.e.peers[0].flying) }

// More senders than can have a turn at once do not have more under way than the budget and a
// packet each, and all of them come to their end.
func TestTurnsOfSenders(t *testing.T) {
	const senders, budget = 100, 64 // turns are of two packets
	w, _, _ := crowd(t, senders, budget, nil)
	w.run(w.now + 2*session.SenderAge)
	for _, n := range w.nodes[1:] {
		for range 4 {
			w.model.post(n, 0, Reliable, 10*n.e.fragment)
		}
		n.pump()
	}
	begin, most := w.now, 0
	for w.model.open > 0 && w.now < begin+10*time.Second {
		w.run(w.now + 20*time.Microsecond)
		w.nodes[0].e.checkTurns(t)
		if w.now > begin+time.Millisecond {
			all := 0
			for _, n := range w.nodes[1:] {
				all += underWay(n)
			}
			most = max(most, all)
		}
	}
	require.Zero(t, w.model.open)
	require.LessOrEqual(t, most, 2*budget)
	for _, n := range w.nodes[1:] {
		require.Zero(t, n.e.Stats.Retransmitted)
		require.Zero(t, n.e.Stats.Probes)
	}
	w.run(w.now + 2*time.Second)
	require.Zero(t, w.nodes[0].e.senders.granted)
	require.Zero(t, w.nodes[0].e.senders.length)
}

// full has a node grant everything it may, so that others wait.
func full(e *Engine) { e.senders.granted += e.cfg.Budget }

// A sender without a grant says once that something waits, and then neither sends, nor probes, nor
// gives anything up; after a while it says so again, since its turn may be lost.
func TestSenderWaits(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	hub, a := w.nodes[0], w.nodes[1]
	full(hub.e)
	crowded := func(d time.Duration) { // the others send single packets
		for end := w.now + d; w.now < end; w.run(w.now + min(session.SenderAge/4, end-w.now)) {
			for _, n := range w.nodes[2:] {
				w.model.post(n, 0, Reliable, 64)
				n.pump()
			}
		}
	}
	crowded(time.Millisecond)
	require.True(t, hub.e.crowded())
	long := w.model.post(a, 0, Reliable, 60*a.e.fragment)
	sent := a.e.Stats.Sent
	a.pump()
	p := a.e.peers[0]
	w.run(w.now + time.Millisecond)
	first := a.e.Stats.Sent - sent // what its last grant allowed
	require.LessOrEqual(t, first, uint64(4))
	require.Zero(t, p.grant)
	require.Zero(t, p.flying)
	require.True(t, a.e.waits(p))
	require.True(t, hub.e.find(addrOf(1)).net.turn.waits)
	least := a.e.cfg.PeerTimeout / askShare / 2
	crowded(least - 2*time.Millisecond)
	require.Equal(t, sent+first, a.e.Stats.Sent)
	crowded(2*least + 2*time.Millisecond)
	require.Equal(t, sent+first+1, a.e.Stats.Sent)
	require.Zero(t, a.e.Stats.Probes+a.e.Stats.Timeouts)

	crowded(5 * a.e.cfg.PeerTimeout) // however long it takes
	require.Zero(t, long.status)
	require.Zero(t, w.model.results[Unresponsive])
	require.LessOrEqual(t, a.e.Stats.Sent-sent, uint64(32+5*2*maxAskShare))
	require.Zero(t, a.e.Stats.Probes)
	hub.e.senders.granted -= hub.e.cfg.Budget
	w.run(w.now + a.e.cfg.PeerTimeout)
	require.Zero(t, w.model.open)
}

// A grant that is lost is given again, long before the sender would ask.
func TestLostGrant(t *testing.T) {
	w, _, back := crowd(t, 40, 32, nil)
	hub, a := w.nodes[0], w.nodes[1]
	lost := 0
	back[1].lose = func(b []byte) bool {
		var k wire.Packet
		if require.NoError(t, k.Decode(b)); lost == 0 && k.HasResponse && k.Response.Grant > 0 {
			lost++
			return true
		}
		return false
	}
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	require.True(t, hub.e.crowded())
	lost = 0
	begin := w.now
	w.model.post(a, 0, Reliable, 30*a.e.fragment)
	a.pump()
	for w.model.open > 0 && w.now < begin+time.Second {
		w.run(w.now + 100*time.Microsecond)
	}
	require.NotZero(t, lost)
	require.Less(t, w.now-begin, a.e.cfg.PeerTimeout/askShare/2)
}

// What is lost at the end of a turn, before a packet that says that nothing waits, comes by another
// turn.
func TestTurnThatWasLostInPart(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	hub, a := w.nodes[0], w.nodes[1]
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	q := hub.e.find(addrOf(1))
	require.True(t, hub.e.crowded())
	hub.e.cfg.Host = &feeder{t: t}
	stamp := uint32(0)
	part := func(seq uint32, waits bool) {
		if stamp == 0 {
			stamp = a.e.Stamp()
		}
		k := wire.Packet{Type: wire.Flow, Token: q.Local, VTag: q.Theirs, Stamp: stamp + seq, Waits: waits, HasPart: true,
			Part: wire.Part{Seq: 1000 + seq, Floor: 1000, Fragment: 10}}
		b := make([]byte, wire.MaxHeaders)
		hub.e.Receive(source(addrOf(1)), b[:k.Encode(b)])
	}
	full(hub.e)
	part(1, true)
	require.True(t, q.net.turn.waits)
	part(3, false)
	require.True(t, q.net.turn.wants, "a packet before it is missing")
	part(2, true)
	require.True(t, q.net.turn.wants)
	part(0, true)
	require.False(t, q.net.turn.wants, "it was sent before the one that said that nothing waits")
	part(4, false)
	require.False(t, q.net.turn.wants)

	at := a.e.Stamp() + 100
	for i, seq := range []uint32{6, 5} { // sent at once, and by two paths
		stamp = at - seq
		part(seq, seq == 5)
		require.Equal(t, i == 0, q.net.turn.wants)
	}
}

// A sender that is the only one of many that has more to send goes on: it has its next turn
// before it has used the last one.
func TestTurnsGoOn(t *testing.T) {
	w, _, _ := crowd(t, 40, 64, nil)
	hub, a := w.nodes[0], w.nodes[1]
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	require.True(t, hub.e.crowded())
	w.model.post(a, 0, Reliable, 400*a.e.fragment)
	a.pump()
	q := hub.e.find(addrOf(1))
	turns, ended := 0, 0
	for w.model.open > 0 {
		was := q.net.turn.left
		w.run(w.now + 10*time.Microsecond)
		require.True(t, hub.e.crowded())
		if left := q.net.turn.left; left > was {
			if turns++; was == 0 {
				ended++
			}
		}
	}
	require.Greater(t, turns, 2)
	require.LessOrEqual(t, ended, 1, "the first turn")
}

// A peer that needs one turn more to end its message has it before others, once.
func TestTurnThatEndsAMessage(t *testing.T) {
	_, e := crowded(t, 32)
	p := e.peers[:4]
	wants := func(q *peer, size, rest uint16) {
		q.net.turn.wants, q.net.turn.size, q.net.turn.rest = true, size, rest
		e.asksTurn(q)
	}
	order := func() (s []uint32) {
		for n := e.senders.length; n > 0; n-- {
			q := e.dequeueTurn()
			s = append(s, q.Slot)
			e.queueTurn(q, false)
		}
		return s
	}
	wants(p[0], 1, 9)
	wants(p[1], 0, 1) // it had none
	wants(p[2], 1, 1)
	require.Equal(t, []uint32{2, 0, 1}, order())
	e.checkTurns(t)
	e.dequeueTurn()
	wants(p[2], 1, 1)
	require.Equal(t, []uint32{0, 1, 2}, order())
	e.dequeueTurn()
	wants(p[0], 1, 1)
	wants(p[3], 1, 1)
	require.Equal(t, []uint32{3, 0, 1, 2}, order())
	e.Forget(&p[1].Peer)
	e.checkTurns(t)
	require.Equal(t, []uint32{3, 0, 2}, order())
}

// A turn that is not used is over after a while, and others have it; a peer that uses none of several
// has no more until it is heard.
func TestTurnThatIsNotUsed(t *testing.T) {
	_, e := crowded(t, 32)
	e.cfg.Budget = 1 // for one at a time
	p, q := e.peers[0], e.peers[1]
	for _, x := range []*peer{p, q} {
		x.net.turn = turn{wants: true}
		e.asksTurn(x)
	}
	e.giveTurns()
	turns := func() (s []bool) { return []bool{p.net.turn.left > 0, q.net.turn.left > 0} }
	for i := range 2 * idleTurns {
		require.Equal(t, []bool{i%2 == 0, i%2 == 1}, turns())
		for _, x := range []*peer{p, q} {
			require.True(t, x.net.turn.left == 0 || x.WakeAt <= x.net.turn.expires)
			x.WakeAt = never
		}
		e.checkTurns(t)
		e.Now = max(p.net.turn.expires, q.net.turn.expires)
		e.turnOver(p)
		if i%2 == 1 {
			e.turnOver(q)
		}
	}
	require.Equal(t, []bool{false, false}, turns())
	require.Zero(t, e.senders.length)
	e.checkTurns(t)
}

// A Welcome to a greeting without a part has a grant: nothing, while many wait.
func TestGreetingOfOneOfMany(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	hub := w.nodes[0]
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	full(hub.e)
	ask := func(stamp uint64, cookie uint64) []wire.Packet {
		from := addrOf(1000)
		hub.e.Receive(source(from), hello(from, addrOf(0), wire.Greeting{Epoch: 5, Token: 6, Stamp: stamp, Cookie: cookie}, nil))
		return answers(hub)
	}
	challenge := ask(1, 0)
	require.Len(t, challenge, 1)
	welcome := ask(2, challenge[0].Challenge.Cookie)
	require.Len(t, welcome, 1)
	require.Equal(t, wire.Welcome, welcome[0].Type)
	require.True(t, welcome[0].HasCredit)
	require.Zero(t, welcome[0].Credit.Grant)
	p := hub.e.find(addrOf(1000))
	require.True(t, p.net.turn.waits)
	hub.e.senders.granted = 0
	hub.e.giveTurns()
	grant := answers(hub)
	require.Len(t, grant, 1)
	require.Equal(t, wire.Flow, grant[0].Type)
	require.NotZero(t, grant[0].Credit.Grant)
	require.False(t, grant[0].HasResponse)
}

// Greetings of many that were lost at once do not all come back at once.
func TestGreetingsSpread(t *testing.T) {
	w := newWorld(t, 1, 2, simple(1))
	e := w.nodes[0].e
	p := e.find(addrOf(1))
	base := 4 * e.cfg.MinTimeout
	var sum, least, most time.Duration = 0, base, 0
	for range 1000 {
		d := e.helloTimeout(p)
		sum, least, most = sum+d, min(least, d), max(most, d)
	}
	require.InDelta(t, float64(base), float64(sum/1000), float64(base)/20)
	require.Less(t, least, base*6/10)
	require.GreaterOrEqual(t, least, base/2)
	require.Greater(t, most, base*14/10)
}

// A peer that waits counts as a sender, and is remembered, however long its turn takes to come; so
// does one that has a turn. Both end with the peer.
func TestWaitingIsNoRest(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	e := w.nodes[0].e
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	p, q := e.peers[0], e.peers[1]
	for _, x := range []*peer{p, q} {
		x.net.turn.wants = true // they sent when there were few
	}
	require.EqualValues(t, 32, e.share(p))
	require.Zero(t, e.share(q))
	require.True(t, q.net.turn.waits)
	e.Now += restAge
	for range 100 {
		e.share(p)
	}
	require.True(t, p.Sender && q.Sender)
	require.Len(t, e.Senders, 2)
	e.rest(p)
	e.rest(q)
	require.NotNil(t, p.net)
	require.NotNil(t, q.net)
	e.checkTurns(t)
	require.True(t, q.net.turn.waits)
	for range 10 { // it sends nothing that could name a path
		e.owes(q, 1)
		e.Now += e.cfg.MinTimeout
	}
	require.False(t, q.net.paths[1].suspect)
	e.Forget(&p.Peer)
	e.checkTurns(t)
	e.Forget(&q.Peer)
	e.checkTurns(t)
}

// Where turns take long they may take longer.
func TestTimeOfTurns(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	e := w.nodes[0].e
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	p := e.peers[0]
	last := func(took time.Duration) time.Duration {
		p.net.turn = turn{wants: true}
		e.senders.granted = 0
		e.asksTurn(p)
		e.giveTurns()
		d := p.net.turn.expires - e.Now
		e.Now += took
		k := wire.Packet{HasPart: true, Waits: true, Stamp: 7, Part: wire.Part{Fragment: 10}}
		e.sends(p, p.rx[Reliable], &k)
		return d
	}
	require.Equal(t, turnTimers*e.cfg.MinTimeout, last(0))
	for range 20 {
		last(20 * time.Millisecond)
	}
	require.InDelta(t, float64(60*time.Millisecond), float64(last(0)), 1e6)
	for range 100 {
		last(0)
	}
	require.Equal(t, turnTimers*e.cfg.MinTimeout, last(0))
	for range 20 {
		last(time.Minute)
	}
	require.Equal(t, e.cfg.PeerTimeout/4, last(0))
	last(0)
	for i := range 100 { // nine of ten do not let others wait longer
		require.Equal(t, turnTimers*e.cfg.MinTimeout, last(time.Duration(min(i%10, 1))*6*time.Millisecond))
	}
}

// A turn that goes on has packets of the last one under way: they do not tell how long it takes.
func TestTimeOfTurnsThatGoOn(t *testing.T) {
	w, _, _ := crowd(t, 40, 32, nil)
	e := w.nodes[0].e
	for _, n := range w.nodes[1:] {
		w.model.post(n, 0, Reliable, 64)
		n.pump()
	}
	w.run(w.now + time.Millisecond)
	p := e.peers[0]
	e.senders.granted = 0
	e.senders.took, e.senders.tookAt = 20*time.Millisecond, e.Now
	p.net.turn = turn{wants: true}
	sends := func() {
		e.sends(p, p.rx[Reliable], &wire.Packet{HasPart: true, Waits: true, Stamp: 7, Part: wire.Part{Fragment: 10}})
	}
	e.asksTurn(p)
	e.giveTurns()
	e.Now += 30 * time.Millisecond
	sends()
	was := p.net.turn.left
	for ; p.net.turn.left <= was; e.Now += 10 * time.Microsecond {
		was = p.net.turn.left
		sends()
	}
	require.NotZero(t, p.net.turn.since)
	sends()
	require.Zero(t, p.net.turn.since)
	require.Equal(t, 20*time.Millisecond, e.senders.took)
}

// Peers that say that they have more to send, and let nearly all of each turn pass, share what there
// is with others as if they sent: they do not stop peers that send.
func TestSendersThatLie(t *testing.T) {
	long(t)
	const liars = 60 // more than can have a turn
	w, _, _ := crowd(t, 70, 768, func(c *Config) { c.MaxMessage, c.PeerTimeout = 10<<20, 5*time.Second })
	hub, a := w.nodes[0], w.nodes[1]
	lies := true
	for _, p := range hub.e.peers[1:][:liars] {
		var lie func()
		lie = func() {
			if !lies {
				return
			}
			var at time.Duration // of the end of its turn
			if p.net != nil && p.net.turn.left > 0 {
				at = p.net.turn.expires
			}
			if hub.e.Advance(hub.raw()); at-hub.e.Now < 200*time.Microsecond {
				k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, Stamp: hub.e.Stamp(), Waits: true, HasPart: true,
					Part: wire.Part{Cancel: true, Seq: 1000, Floor: 1000, Total: 5, Fragment: 10}}
				var b [wire.MaxHeaders]byte
				hub.e.Receive(source(p.Addr), b[:k.Encode(b[:])])
				hub.pump()
			}
			w.after(100*time.Microsecond, lie)
		}
		lie()
	}
	w.run(w.now + 5*time.Millisecond)
	begin := w.now
	l := w.model.post(a, 0, Reliable, 5000*a.e.fragment)
	a.pump()
	for l.status == 0 && w.now < begin+time.Second {
		w.run(w.now + 100*time.Microsecond)
	}
	lies = false
	t.Logf("%v; a turn is thought to take %v", w.now-begin, hub.e.senders.took)
	require.Equal(t, Delivered, l.status)
	require.Less(t, w.now-begin, 500*time.Millisecond)
}

// A peer that does not use two turns in a row has shorter ones, until it does again.
func TestShorterTurns(t *testing.T) {
	_, e := crowded(t, 256)
	require.Equal(t, 8, e.turnSize())
	p := e.peers[0]
	p.net.turn = turn{wants: true}
	e.senders.granted = e.cfg.Budget - e.turnSize() // one turn is left
	e.asksTurn(p)
	e.giveTurns()
	turn := &p.net.turn
	uses := func(n int) {
		for range n {
			e.sends(p, p.rx[Reliable], &wire.Packet{HasPart: true, Waits: true, Stamp: 7, Part: wire.Part{Fragment: 10}})
		}
	}
	expires := func() {
		e.Now = turn.expires
		e.turnOver(p)
	}
	require.EqualValues(t, 8, turn.left)
	expires()
	require.EqualValues(t, 8, turn.left, "the grant may have been lost")
	expires()
	for _, n := range []int{1, 2, 4} {
		require.EqualValues(t, n, turn.left)
		uses(n)
	}
	for range 3 {
		require.EqualValues(t, 8, turn.left)
		uses(3)
		expires()
		require.EqualValues(t, 8, turn.left)
		uses(8)
	}
	for range 2 {
		require.EqualValues(t, 8, turn.left)
		uses(3)
		expires()
	}
	require.EqualValues(t, 3, turn.left)
	require.Equal(t, e.cfg.Budget-8+3, e.senders.granted)
}

// Paths to a peer that has granted nothing are probed when they are used again.
func TestNoProbesWithoutAGrant(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	w.model.post(a, 1, Reliable, 64)
	p.grant, p.net.asking = 0, asking{told: true, at: never}
	e.suspect(p, &p.net.paths[0])
	for range 50 {
		w.now += e.cfg.MinTimeout
		e.Advance(a.raw())
		require.Empty(t, answers(a))
	}
	e.onGrant(p, &wire.Credit{Grant: 8})
	probes := 0
	for _, k := range answers(a) {
		if k.Type == wire.Probe {
			probes++
		}
	}
	require.Equal(t, 1, probes)
}

// A peer without a grant and with nothing to send tries its paths all the same while the other
// end sends: its responses go by them.
func TestProbesOfWhoResponds(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 4 })
	a, p := w.nodes[0], w.nodes[1].e.peers[0]
	w.model.patient = true
	back := make([]*link, 4)
	for i := range back {
		back[i] = &link{delay: 50 * time.Microsecond, loss: 0.05}
	}
	out := &link{delay: 50 * time.Microsecond}
	w.links = func(from, _, path int) *link {
		if from == 0 {
			return out
		}
		return back[path]
	}
	single := func(d time.Duration) {
		for end := w.now + d; w.now < end; w.run(w.now + time.Millisecond) {
			w.model.post(a, 1, Reliable, 64)
			a.pump()
		}
	}
	p.grant = 0 // as the other end said when many sent to it
	single(5 * time.Second)
	require.Zero(t, p.grant)
	most := 0
	for i, l := range back {
		if l.sent > back[most].sent {
			most = i
		}
	}
	back[most].dead = true
	single(5 * time.Second)
	for i, l := range back {
		require.Greater(t, l.sent, uint64(500), "path %d", i)
	}
}

// A grant begins the times between asks anew; a peer with nothing more to send is not held up by
// what it told before.
func TestGrantEndsAsking(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	p.net.asking = asking{told: true, tries: 5, at: never}
	e.granted(p, 3)
	require.Zero(t, p.net.asking.tries)
	e.onGrant(p, &wire.Credit{})
	require.False(t, p.net.asking.told)
	require.Equal(t, never, e.ask(p), "nothing waits")
	w.model.post(a, 1, Reliable, 64)
	require.Len(t, answers(a), 1, "a single packet needs no grant")
}

// A peer that used none of its turns has others when it is heard, whatever its clock says.
func TestTurnsOfWhoIsHeardAgain(t *testing.T) {
	_, e := crowded(t, 32)
	p := e.peers[0]
	for _, stamp := range []uint32{5, 1<<31 + 5} {
		e.endTurn(p)
		p.net.turn.idle = idleTurns
		f := p.rx[Reliable]
		f.now = false
		e.sends(p, f, &wire.Packet{HasPart: true, Waits: true, Stamp: stamp, Part: wire.Part{Fragment: 10}})
		require.NotZero(t, p.net.turn.left)
		require.Zero(t, p.net.turn.idle)
		require.True(t, f.now)
		require.False(t, p.net.turn.owed, "the response tells")
	}
}

// Many that were told to wait at once do not ask at once.
func TestAsksSpread(t *testing.T) {
	w := settledPair(t, nil)
	e, p := w.nodes[0].e, w.nodes[0].e.peers[0]
	const base = 100 * time.Millisecond
	var sum, least, most time.Duration = 0, base, 0
	for range 1000 {
		p.WakeAt = never
		e.askIn(p, base)
		require.Equal(t, p.net.asking.at, p.WakeAt)
		d := p.net.asking.at - e.Now
		sum, least, most = sum+d, min(least, d), max(most, d)
	}
	require.InDelta(t, float64(base), float64(sum/1000), float64(base)/20)
	require.Less(t, least, base*6/10)
	require.GreaterOrEqual(t, least, base/2)
	require.Greater(t, most, base*14/10)
}
