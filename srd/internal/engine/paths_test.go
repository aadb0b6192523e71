package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// network of two nodes, of which the first sends by paths that f makes.
func pathsFrom(w *world, f func(path int) *link) []*link {
	var out, back []*link
	for i := range w.cfg.Paths {
		out = append(out, f(i))
		back = append(back, &link{delay: 50 * time.Microsecond})
	}
	w.links = func(from, _, path int) *link {
		if from == 0 {
			return out[path]
		}
		return back[path]
	}
	return out
}

// stream keeps so many messages of a size under way until a time, and returns how long
// each took that was settled after another time.
func stream(w *world, n int, size int, since, until time.Duration) (took []time.Duration, bytes int) {
	a := w.nodes[0]
	post := func() { w.model.post(a, 1, Reliable, size) }
	w.model.onSettled = func(l *letter) {
		require.Equal(w.t, Delivered, l.status)
		if l.settle > since {
			took = append(took, l.settle-l.sentAt)
			bytes += size
		}
		l.body = nil
		a.later = append(a.later, post)
	}
	defer func() { w.model.onSettled = nil }()
	for range n - w.model.open {
		post()
	}
	a.pump()
	w.run(until)
	slices.Sort(took)
	return took, bytes
}

// long skips a test of very many packets under the race detector, which is slow: the
// engine has no goroutines.
func long(t *testing.T) {
	if racing && testing.Short() {
		t.Skip("takes long under the race detector")
	}
}

func quantile(d []time.Duration, q float64) time.Duration { return d[int(q*float64(len(d)-1))] }

// limited is a path of 25,000 packets a second.
func limited(int) *link {
	return &link{delay: 50 * time.Microsecond, each: 40 * time.Microsecond, limit: 5 * time.Millisecond}
}

// Loss that all paths have costs what is lost, and little more.
func TestGoodputUnderLoss(t *testing.T) {
	long(t)
	goodput := func(loss float64) int {
		w := newWorld(t, 1, 2, simple(4))
		pathsFrom(w, func(i int) *link {
			l := limited(i)
			l.loss = loss
			return l
		})
		_, bytes := stream(w, 64, 8000, 100*time.Millisecond, 400*time.Millisecond)
		return bytes
	}
	none := goodput(0)
	one, five := float64(goodput(0.01))/float64(none), float64(goodput(0.05))/float64(none)
	t.Logf("goodput %.0f MB/s; with 1 %% loss %.3f of it, with 5 %% %.3f", float64(none)/0.3/1e6, one, five)
	require.Greater(t, float64(none)/0.3, 80e6, "the links carry 4*25,000 packets of 900 bytes a second")
	require.Greater(t, one, 0.95)
	require.Greater(t, five, 0.85)
}

// A message that is lost is sent again within a few round trips.
func TestTailUnderLoss(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	pathsFrom(w, func(i int) *link { return &link{delay: 50 * time.Microsecond, loss: 0.01} })
	took, _ := stream(w, 1, 64, 50*time.Millisecond, 700*time.Millisecond)
	t.Logf("%d messages: median %v, 99 %% %v", len(took), quantile(took, 0.5), quantile(took, 0.99))
	require.Less(t, quantile(took, 0.99), 3*time.Millisecond)
	require.Less(t, quantile(took, 0.5), 400*time.Microsecond)
}

// A path that loses a tenth is hardly used after a second, though it is tried again.
func TestLossyPath(t *testing.T) {
	long(t)
	w := newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	out[2].loss = 0.1
	stream(w, 64, 8000, 0, time.Second)
	var before [4]uint64
	for i, l := range out {
		before[i] = l.sent
	}
	stream(w, 64, 8000, 0, w.now+time.Second)
	all := uint64(0)
	for i, l := range out {
		all += l.sent - before[i]
	}
	share := float64(out[2].sent-before[2]) / float64(all)
	t.Logf("the path of 10 %% loss has %.4f of the packets", share)
	require.Less(t, share, 0.02)
	require.NotZero(t, share, "it is probed")
	require.NotZero(t, w.nodes[0].e.Stats.Retired)
}

// lossyLink is two nodes with 16 paths over four links, and what each link has carried. One of
// them loses a tenth, in both directions, and the hosts are slow.
func lossyLink(t *testing.T, seed uint64) (w *world, sent *[2][4]float64, loss *float64) {
	cfg := simple(16)
	cfg.AckDelay = 2 * time.Millisecond
	w, sent, loss = newWorld(t, seed, 2, cfg), new([2][4]float64), new(float64)
	*loss = 0.1
	var hosts [2]*link
	for d := range hosts {
		hosts[d] = &link{delay: 50 * time.Microsecond, each: 400 * time.Microsecond, limit: time.Second, lose: func(b []byte) bool {
			var k wire.Packet
			if k.Decode(b) != nil || k.Type != wire.Flow && k.Type != wire.Probe && k.Type != wire.Echo {
				return false
			}
			at := k.SubFlow * 7 % 4
			sent[d][at]++
			return at == 1 && w.rng.Float64() < *loss
		}}
	}
	w.links = func(from, _, _ int) *link { return hosts[from] }
	return w, sent, loss
}

func share(of [4]float64) float64 { return of[1] / (of[0] + of[1] + of[2] + of[3]) }

// After a second, which is a few thousand packets, neither messages nor responses go by a
// link that loses a tenth, but for a few that try.
func TestLossyLink(t *testing.T) {
	var all [2][4]float64
	for seed := range uint64(12) {
		w, sent, _ := lossyLink(t, seed+1)
		stream(w, 64, 600, 0, time.Second)
		*sent = [2][4]float64{}
		stream(w, 64, 600, 0, w.now+1400*time.Millisecond)
		for d := range all {
			for i, n := range sent[d] {
				all[d][i] += n
			}
		}
	}
	messages, responses := share(all[0]), share(all[1])
	t.Logf("a link of four that loses a tenth has %.4f of the packets with messages, %.4f of those with responses", messages, responses)
	require.Less(t, messages, 0.008)
	require.Less(t, responses, 0.045)
}

// When it loses nothing any more it is used like the others, after some seconds.
func TestLinkThatLostComesBack(t *testing.T) {
	long(t)
	w, sent, loss := lossyLink(t, 1)
	stream(w, 64, 600, 0, time.Second)
	*loss = 0
	stream(w, 64, 600, 0, w.now+3*lossRest)
	*sent = [2][4]float64{}
	stream(w, 64, 600, 0, w.now+time.Second)
	require.InDelta(t, 0.25, share(sent[0]), 0.08)
	require.Greater(t, share(sent[1]), 0.08)
}

// A response that others overtook is lost, and says something of its path: for some seconds.
func TestOvertakenResponse(t *testing.T) {
	w := settledPair(t, nil)
	n := w.nodes[0]
	p := n.e.peers[0]
	x := &n.e.network(p).paths
	for range 2 {
		n.e.owes(p, 0)
		w.run(w.now + 5*time.Millisecond)
		n.e.Advance(n.raw())
		n.e.owes(p, 1)
		n.e.named(p, 1<<1)
		require.True(t, x[0].suspect)
		x[0].works()
	}
	require.True(t, p.net.loses(0))
	require.False(t, p.net.loses(1))
	p.net.agedAt -= lossRest
	n.e.owes(p, 1)
	n.e.named(p, 1<<1)
	require.False(t, p.net.loses(0))
}

// A path that comes back is used again.
func TestPathComesBack(t *testing.T) {
	long(t)
	w := newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	out[1].dead = true
	stream(w, 16, 8000, 0, 300*time.Millisecond)
	require.True(t, w.nodes[0].e.peers[0].net.paths[1].retired)
	sent := out[1].sent
	out[1].dead = false
	stream(w, 16, 8000, 0, w.now+300*time.Millisecond)
	require.False(t, w.nodes[0].e.peers[0].net.paths[1].retired)
	require.Greater(t, out[1].sent-sent, uint64(1000))
	require.NotZero(t, w.nodes[0].e.Stats.Revived)
}

// A dead path does not show after a fifth of a second.
func TestDeadPath(t *testing.T) {
	p99 := func(dead bool) time.Duration {
		w := newWorld(t, 1, 2, simple(4))
		out := pathsFrom(w, limited)
		stream(w, 2, 64, 0, 100*time.Millisecond)
		out[3].dead = dead
		took, _ := stream(w, 2, 64, w.now+200*time.Millisecond, w.now+500*time.Millisecond)
		return quantile(took, 0.99)
	}
	healthy, dead := p99(false), p99(true)
	t.Logf("99 %% within %v, with a dead path of four %v", healthy, dead)
	require.LessOrEqual(t, float64(dead), 1.2*float64(healthy))
}

// Several paths share a link, as source ports do. When it dies, in both directions, messages
// lose a few round trips to it, and after a fifth of a second nothing.
func TestDeadLink(t *testing.T) {
	run := func(dead bool) (p99, longest time.Duration) {
		w := newWorld(t, 1, 2, simple(16))
		var all [2][4]*link
		for d := range all {
			for i := range all[d] {
				all[d][i] = &link{delay: 50 * time.Microsecond, jitter: 20 * time.Microsecond}
			}
		}
		w.links = func(from, _, path int) *link { return all[from][path*7%4] }
		stream(w, 1, 64, 0, 50*time.Millisecond)
		all[0][3].dead, all[1][3].dead = dead, dead
		took, _ := stream(w, 1, 64, 0, w.now+200*time.Millisecond)
		longest = took[len(took)-1]
		again := w.nodes[0].e.Stats.Retransmitted
		t.Logf("%d packets sent again until then", again)
		if dead {
			require.LessOrEqual(t, again, uint64(12), "one for each path that is dead, of either side, and a few")
		}
		took, _ = stream(w, 1, 64, 0, w.now+300*time.Millisecond)
		require.LessOrEqual(t, w.nodes[0].e.Stats.Retransmitted-again, uint64(2), "all paths of it are known")
		return quantile(took, 0.99), max(longest, took[len(took)-1])
	}
	healthy, longest := run(false)
	dead, longestDead := run(true)
	t.Logf("99 %% within %v, all within %v; with a dead link %v and %v", healthy, longest, dead, longestDead)
	require.LessOrEqual(t, float64(dead), 1.2*float64(healthy))
	require.LessOrEqual(t, longestDead, longest+12*time.Millisecond)
}

// Round trips that vary are waited for: little is sent again that was not lost.
func TestVariance(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	pathsFrom(w, func(int) *link { return &link{delay: 100 * time.Microsecond, jitter: 5 * time.Millisecond} })
	took, _ := stream(w, 2, 64, 50*time.Millisecond, time.Second)
	again := w.nodes[0].e.Stats.Retransmitted
	t.Logf("%d messages, %d packets sent again", len(took), again)
	require.Less(t, again, uint64(len(took)/50))
}

// A host that is busy now and then has no queue that stands: the window stays open.
func TestBusyHost(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	pathsFrom(w, func(int) *link { return &link{delay: 100 * time.Microsecond, jitter: 20 * time.Millisecond} })
	stream(w, 32, 64, 0, time.Second)
	require.Greater(t, int(w.nodes[0].e.peers[0].net.window>>8), 16)
}

// When everything is late, no path is worse than the others.
func TestStall(t *testing.T) {
	w := newWorld(t, 1, 2, simple(8))
	out := pathsFrom(w, func(int) *link { return &link{delay: 50 * time.Microsecond} })
	stream(w, 8, 64, 0, 100*time.Millisecond)
	for _, l := range out {
		l.delay = 300 * time.Millisecond
	}
	stream(w, 8, 64, 0, w.now+290*time.Millisecond)
	require.NotZero(t, w.nodes[0].e.Stats.Timeouts)
	require.Zero(t, w.nodes[0].e.Stats.Retired)
}

// What all paths lose is no reason to give one up; two are used in any case.
func TestPathsAreJudgedByOthers(t *testing.T) {
	long(t)
	w := newWorld(t, 1, 2, simple(8))
	pathsFrom(w, func(i int) *link {
		l := limited(i)
		l.loss = 0.05
		return l
	})
	stream(w, 64, 8000, 0, time.Second)
	require.LessOrEqual(t, w.nodes[0].e.Stats.Retired, uint64(3), "of eight, in a second")

	w = newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	out[0].dead, out[1].dead, out[2].dead = true, true, true
	stream(w, 8, 64, 0, 500*time.Millisecond)
	require.EqualValues(t, 2, w.nodes[0].e.peers[0].net.live)
	require.False(t, w.nodes[0].e.peers[0].net.paths[3].retired)
}

// Paths have equal shares while they are equal.
func TestPathsShare(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	stream(w, 64, 8000, 0, 80*time.Millisecond)
	for i, l := range out {
		share := float64(l.sent) * 4 / float64(out[0].sent+out[1].sent+out[2].sent+out[3].sent)
		require.InDelta(t, 1, share, 0.3, "path %d", i)
	}
}

// The delay of most paths shows congestion, that of one does not.
func TestCongestion(t *testing.T) {
	long(t)
	window := func(slow int) uint32 {
		w := newWorld(t, 1, 2, simple(4))
		out := pathsFrom(w, func(int) *link {
			return &link{delay: 50 * time.Microsecond, each: 5 * time.Microsecond, limit: time.Hour}
		})
		stream(w, 64, 8000, 0, 50*time.Millisecond)
		for _, l := range out[:slow] {
			l.delay += 20 * time.Millisecond
		}
		stream(w, 64, 8000, 0, w.now+250*time.Millisecond)
		return w.nodes[0].e.peers[0].net.window >> 8
	}
	none, one, three := window(0), window(1), window(3)
	t.Logf("windows: %d; with one slow path of four %d, with three %d", none, one, three)
	require.Greater(t, none, uint32(200))
	require.Greater(t, one, uint32(200))
	require.Less(t, three, uint32(50))
}

// The timer of a sub-flow begins anew with each response to it, and with
// none for others.
func TestSubFlowTimers(t *testing.T) {
	w := newWorld(t, 1, 2, simple(2))
	out := pathsFrom(w, func(int) *link { return &link{delay: 3 * time.Millisecond} })
	stream(w, 8, 64, 0, 100*time.Millisecond)
	e := w.nodes[0].e
	timeouts := e.Stats.Timeouts
	w.run(w.now + 50*time.Millisecond)
	require.Equal(t, timeouts, e.Stats.Timeouts)

	out[0].dead = true
	for range 6 {
		w.model.post(w.nodes[0], 1, Reliable, 64)
	}
	w.nodes[0].pump()
	f := e.peers[0].tx[Reliable]
	require.False(t, f.live.subs[0].empty())
	require.False(t, f.live.subs[1].empty())
	silent := f.live.subs[0].armed
	other := f.live.subs[1].armed
	w.run(w.now + 4*time.Millisecond)
	require.Equal(t, silent, f.live.subs[0].armed, "nothing came of this sub-flow")
	require.Greater(t, f.live.subs[1].armed, other)
	require.Equal(t, timeouts, e.Stats.Timeouts)
	w.run(w.now + 100*time.Millisecond)
	require.Greater(t, e.Stats.Timeouts, timeouts)
	require.Zero(t, w.model.open, "what the dead path swallowed went by the other one")
}

// A packet that a later one of its path overtook is sent again before any timer ends;
// one that another path overtook is not.
func TestOvertaken(t *testing.T) {
	w := newWorld(t, 1, 2, simple(2))
	out := pathsFrom(w, func(i int) *link { return &link{delay: time.Duration(1+9*i) * 100 * time.Microsecond} })
	stream(w, 16, 64, 0, 100*time.Millisecond)
	e := w.nodes[0].e
	w.run(w.now + 20*time.Millisecond)
	again, timeouts := e.Stats.Retransmitted, e.Stats.Timeouts
	stream(w, 16, 64, 0, w.now+50*time.Millisecond)
	require.Equal(t, again, e.Stats.Retransmitted, "paths of 100 us and of 1 ms reorder")
	lost := 0
	out[0].lose = func(b []byte) bool { lost++; return lost == 3 }
	stream(w, 16, 64, 0, w.now+20*time.Millisecond)
	require.Equal(t, again+1, e.Stats.Retransmitted)
	require.Equal(t, timeouts, e.Stats.Timeouts)
}

// One path, no sub-flows: one timer, and loss is recovered all the same.
func TestOnePath(t *testing.T) {
	w := newWorld(t, 1, 2, simple(1))
	out := pathsFrom(w, limited)
	out[0].loss = 0.05
	took, _ := stream(w, 16, 3000, 0, 200*time.Millisecond)
	require.Greater(t, len(took), 500)
	e := w.nodes[0].e
	require.NotZero(t, e.Stats.Retransmitted)
	require.Zero(t, e.Stats.Retired)
}

// What a reporting service loses is reported, part by part, and not sent again.
func TestNoRetransmit(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	lost := 0
	l := &link{delay: 50 * time.Microsecond, lose: func(b []byte) bool {
		if len(b) > 800 {
			lost++
		}
		return len(b) > 800 && lost == 2
	}}
	w.links = func(int, int, int) *link { return l }
	parts := make(map[int]Status)
	m := w.model.post(a, 1, NoRetransmit, 2000)
	m.parts = parts
	a.e.messages[uint32(m.handle)].parts = true
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Retransmit, m.status)
	require.Zero(t, m.count)
	require.Equal(t, map[int]Status{0: Delivered, 1: Retransmit, 2: Delivered}, parts)
	again := w.model.post(a, 1, NoRetransmit, 2000)
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.Equal(t, Delivered, again.status)
	w.run(w.now + 10*time.Second)
	w.model.end()
}

// What is sent again takes another path, whatever arrived by the last one.
func TestAnotherPath(t *testing.T) {
	w := settledPair(t, nil)
	e := w.nodes[0].e
	p := e.peers[0]
	for avoid := range 2 {
		for range 100 {
			for range 32 {
				e.arrived(p, uint8(avoid))
			}
			require.EqualValues(t, 1-avoid, e.choose(p, avoid))
		}
	}
}

// Of two good paths the less busy one is taken, but for those packets that explore.
func TestLessBusyPath(t *testing.T) {
	w := settledPair(t, nil)
	e := w.nodes[0].e
	p := e.peers[0]
	n := e.network(p)
	for busy := range 2 {
		n.paths[0].SRTT, n.paths[1].SRTT, n.middle = time.Millisecond, time.Millisecond, time.Millisecond
		n.paths[busy].flying, n.paths[1-busy].flying = 9, 0
		taken := 0
		for range 160 {
			e.arrived(p, uint8(busy))
			if int(e.choose(p, -1)) == busy {
				taken++
			}
		}
		require.LessOrEqual(t, taken, 85, "half of the turns are its own")
	}
}

// A path that was slow is tried now and then: it may be so no longer.
func TestSlowPathIsTried(t *testing.T) {
	w := newWorld(t, 1, 2, simple(2))
	out := pathsFrom(w, func(int) *link { return &link{delay: 50 * time.Microsecond} })
	out[1].delay = 3 * time.Millisecond
	stream(w, 1, 64, 0, 200*time.Millisecond)
	out[1].delay = 50 * time.Microsecond
	stream(w, 1, 64, 0, w.now+300*time.Millisecond)
	before := out[1].sent
	stream(w, 1, 64, 0, w.now+100*time.Millisecond)
	require.Greater(t, out[1].sent-before, uint64(10))
}

// Echoes bring a path back if they come in a row.
func TestEchoesInARow(t *testing.T) {
	w := newWorld(t, 1, 2, simple(4))
	out := pathsFrom(w, limited)
	out[1].dead = true
	stream(w, 4, 64, 0, 200*time.Millisecond)
	x := &w.nodes[0].e.peers[0].net.paths[1]
	require.True(t, x.retired)
	probes := 0
	out[1].dead, out[1].lose = false, func([]byte) bool { probes++; return probes%2 == 0 }
	stream(w, 1, 64, 0, w.now+700*time.Millisecond)
	require.Greater(t, probes, 16)
	require.Zero(t, w.nodes[0].e.Stats.Revived)
}

// A path that is to be tried is, whatever else its peer is owed first.
func TestProbeWaitsForItsTurn(t *testing.T) {
	for _, first := range []wire.Type{wire.Echo, wire.Welcome} {
		w := settledPair(t, nil)
		n := w.nodes[0]
		e, p := n.e, n.e.peers[0]
		p.echo, p.Welcome = first == wire.Echo, first == wire.Welcome
		e.timedOut(p, 1)
		sent := answers(n)
		require.Len(t, sent, 2)
		require.Equal(t, first, sent[0].Type)
		require.Equal(t, wire.Probe, sent[1].Type)
		require.EqualValues(t, 1, sent[1].SubFlow)
	}
}

// Packets of a flow name the paths by which something came: others are not used for that.
func TestHeardGoesWithFlows(t *testing.T) {
	w := settledPair(t, nil)
	n := w.nodes[0]
	p := n.e.peers[0]
	n.e.network(p).came = 1<<1 | 1
	p.echo = true
	n.e.timedOut(p, 1)
	w.model.post(n, 1, Reliable, 64)
	w.model.post(n, 1, Reliable, 64)
	var heard []uint16
	for _, k := range answers(n) {
		heard = append(heard, k.Heard)
	}
	require.Equal(t, []uint16{0, 0, 1<<1 | 1, 0}, heard, "an echo, a probe, and two messages")
}
