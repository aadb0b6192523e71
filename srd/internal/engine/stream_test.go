package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// arrive hands in a packet of a flow as if it came by a path, the next one of it.
func (f *feeder) arrive(seq uint32, number uint16, more bool) []wire.Packet {
	k := wire.Packet{Type: wire.Flow, Token: f.p.Local, VTag: f.p.Theirs, SubFlow: 1, SubSeq: number, More: more, HasPart: true,
		Part: wire.Part{Seq: f.base + seq, Floor: f.base, Fragment: 10}}
	b := make([]byte, wire.MaxHeaders)
	f.n.e.Receive(source(addrOf(0)), b[:k.Encode(b)])
	return answers(f.n)
}

// pass lets time go by, and returns the responses.
func (f *feeder) pass(d time.Duration) []wire.Packet {
	f.n.w.now += d
	f.n.e.Advance(f.n.raw())
	return slices.DeleteFunc(answers(f.n), func(k wire.Packet) bool { return !k.HasResponse })
}

// The response to a burst waits for its end, but not for long.
func TestResponseWaitsForTheBurst(t *testing.T) {
	f := feed(t, 50)
	f.n.e.cfg.Budget = 1024
	f.pass(0)
	f.n.e.ackDelay *= 2 // where the device is slow
	d := f.n.e.ackDelay
	seq := uint32(0)
	next := func(more bool) []wire.Packet {
		seq++
		return f.arrive(seq-1, uint16(seq), more)
	}
	for range 5 { // packets that may be the last ones
		require.Empty(t, next(false))
		require.Empty(t, f.pass(d/8))
	}
	require.Len(t, f.pass(d*3/8), 1, "the delay after the first one")

	for range 7 {
		require.Empty(t, next(true))
		require.Empty(t, f.pass(d*3/2))
	}
	require.Empty(t, next(false))
	require.Empty(t, f.pass(d/2-time.Microsecond))
	require.Len(t, f.pass(time.Microsecond), 1, "that was waited for")
	require.Empty(t, f.pass(10*d), "all was told")

	require.Empty(t, next(true))
	require.Empty(t, f.pass(2*d-time.Microsecond))
	require.Len(t, f.pass(time.Microsecond), 1, "the next one is late")

	for range 10 {
		require.Empty(t, next(true))
		require.Empty(t, f.pass(d*3/2))
	}
	require.Empty(t, next(true))
	require.Len(t, f.pass(d), 1, "16 times the delay after the first one")

	require.Empty(t, next(true))
	require.Empty(t, f.pass(d/2))
	require.Empty(t, next(false))
	require.Len(t, f.pass(d), 1, "what was waited for came, and nothing behind it")

	f.n.e.cfg.Budget = 8 // of which a quarter has a response
	require.Empty(t, next(true))
	require.Len(t, next(true), 1)
}

// The packet that ends a message that is given up has a response at once: a caller waits.
func TestCancelIsAnsweredAtOnce(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	p := a.e.peers[0]
	p.grant = 4
	l := w.model.post(a, 1, Reliable, 20_000)
	a.e.messages[uint32(l.handle)].now = false
	require.Len(t, answers(a), 4)
	p.grant = 100
	a.e.Cancel(l.handle)
	sent := answers(a)
	require.Len(t, sent, 1)
	require.True(t, sent[0].Part.Cancel)
	require.True(t, sent[0].RespondNow)
}

// A sender that has more to send at once says so.
func TestMore(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	p := a.e.peers[0]
	said := func(n int, grant uint16) (more []bool) {
		p.grant = grant
		for range n {
			m := w.model.post(a, 1, Reliable, 64)
			a.e.messages[uint32(m.handle)].now = false
		}
		for _, k := range answers(a) {
			more = append(more, k.More)
		}
		return more
	}
	require.Equal(t, []bool{true, true, false}, said(3, 100))
	require.Equal(t, []bool{true, false}, said(4, 5), "there is no room for more")
	a.e.out.More, p.echo = true, true // of the packet before, which went to another peer
	a.e.Enqueue(&p.Peer)
	require.Equal(t, []bool{false}, said(0, 5))
}

// A timer gives the response to a burst as long as its receiver may let it wait.
func TestTimersAllowForBursts(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.MinTimeout = 100 * time.Microsecond })
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	e.ackDelay *= 2 // which a response waits that was not asked for at once
	d, f := e.ackDelay, p.tx[Reliable]
	p.grant = 100
	send := func(n int) {
		for range n {
			m := w.model.post(a, 1, Reliable, 64)
			e.messages[uint32(m.handle)].now = false
		}
		require.Len(t, answers(a), n)
	}
	send(1)
	first := f.live.ring[f.una&uint32(len(f.live.ring)-1)]
	s, x := &f.live.subs[first.path], &e.network(p).paths[first.path]
	timeout := func(srtt time.Duration) time.Duration {
		x.SRTT = srtt
		return e.timeout(f, s, first.path)
	}
	fresh, alone := timeout(0), timeout(100*time.Microsecond)
	allowance := func() time.Duration {
		d := timeout(100*time.Microsecond) - alone
		require.Equal(t, d, timeout(0)-fresh, "of a path without a round trip as well")
		return d
	}
	require.Zero(t, allowance(), "nobody was told that another one comes")
	w.now += d / 4
	e.Advance(a.raw())
	send(1)
	require.Zero(t, allowance())
	send(2)
	require.Equal(t, d/4+d, allowance(), "the last one that promised another was sent so much later")
	s.armed = e.Now
	require.Equal(t, d, allowance(), "the burst goes on")
	s.armed++
	require.Zero(t, allowance(), "what was promised has been answered")
	s.armed = e.Now - 100*d
	require.Equal(t, 15*d, allowance(), "no response waits longer than 16")
}

// How long a packet in a burst waited for its response is known of the one that is echoed
// alone: others tell nothing of their paths.
func TestBurstsTellNoRoundTrips(t *testing.T) {
	for _, burst := range []bool{false, true} {
		w := settledPair(t, nil)
		a := w.nodes[0]
		e, p := a.e, a.e.peers[0]
		p.grant = 100
		var paths []uint8
		for range 8 {
			m := w.model.post(a, 1, Reliable, 64)
			e.messages[uint32(m.handle)].now = false
			m.count = 1 // the response comes by no packet
			if !burst {
				answers(a)
			}
		}
		answers(a)
		f := p.tx[Reliable]
		for s := f.una; s != f.nxt; s++ {
			paths = append(paths, f.live.at(s).path)
		}
		require.Contains(t, paths, uint8(0))
		require.Contains(t, paths, uint8(1))
		before := [2]time.Duration{e.network(p).paths[0].SRTT, e.network(p).paths[1].SRTT}
		w.now += time.Second / 100
		e.Advance(a.raw())
		e.onResponse(p, &wire.Response{Service: Reliable, Base: f.nxt - 1, Floor: f.nxt - 1, Grant: 100})
		after := [2]time.Duration{e.network(p).paths[0].SRTT, e.network(p).paths[1].SRTT}
		if burst {
			require.Equal(t, before, after)
		} else {
			require.Greater(t, after[0], before[0])
			require.Greater(t, after[1], before[1])
		}
	}
}

// A flow has a mask while packets are missing.
func TestMaskWhileMissing(t *testing.T) {
	for _, service := range []uint8{Reliable, Ordered} {
		f := feed(t, 1<<32-2)
		seen := func() *wire.Mask { return f.p.rx[service].seen.Mask }
		part := func(seq, floor uint32) *wire.Response {
			return f.part(wire.Part{Service: service, Seq: seq, Floor: floor}, true)
		}
		part(0, 0)
		require.Nil(t, seen())
		part(2, 0)
		require.NotNil(t, seen())
		mask := seen()
		require.Equal(t, Delivered, f.says(part(3, 0), 3))
		r := part(1, 0)
		require.Nil(t, seen())
		require.Equal(t, f.base+4, r.Base)
		require.Zero(t, r.NSeen)
		require.Len(t, f.got, 4)

		r = part(6, 4)
		require.Same(t, mask, seen(), "it is used again")
		require.Zero(t, f.says(r, 5))
		require.Equal(t, Delivered, f.says(r, 6))
		part(8, 8) // what is before never comes
		require.Nil(t, seen())

		part(10, 8)
		f.n.e.dropReceived(f.p)
		require.Len(t, f.n.e.masks, 1)
		require.Equal(t, wire.Mask{}, *f.n.e.masks[0])
	}
}

// Of the flows that were under way at once few are kept.
func TestFlowsAreGivenBack(t *testing.T) {
	e, _ := direct(simple(2), 0)
	var all []*txFlow
	for range 5 * spareNetworks {
		f := new(txFlow)
		e.acquire(f)
		all = append(all, f)
	}
	for _, f := range all {
		e.releaseFlow(f)
		require.Nil(t, f.live)
	}
	require.Equal(t, spareNetworks, len(e.flows))
}

// A packet that is lost again and again does not stop those behind it, before the numbers
// are used up; no more than 256 packets are under way.
func TestNumbersBeyondThoseUnderWay(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Budget, c.AckDelay = 4096, 50*time.Microsecond })
	a := w.nodes[0]
	f := a.e.peers[0].tx[Reliable]
	stuck := f.nxt + 1000
	until := w.now + time.Hour
	w.links = func(int, int, int) *link {
		return &link{delay: 500 * time.Microsecond, lose: func(b []byte) bool {
			var k wire.Packet
			return k.Decode(b) == nil && k.HasPart && k.Part.Seq == stuck && w.now < until
		}}
	}
	most, span := uint32(0), uint32(0)
	w.model.onSettled = func(*letter) {
		most, span = max(most, a.e.peers[0].flying), max(span, f.nxt-f.una)
	}
	for range 4000 {
		w.model.post(a, 1, Reliable, 64)
	}
	a.pump()
	w.run(w.now + 100*time.Millisecond)
	require.EqualValues(t, wire.Window, span)
	require.LessOrEqual(t, most, uint32(256))
	require.Greater(t, most, uint32(200))
	until = w.now
	w.run(w.now + 500*time.Millisecond)
	require.Zero(t, w.model.open)
	w.model.end()
}

// A response that is too long to ride along is not put off until the program has nothing
// more to send.
func TestLongResponseGoesAlone(t *testing.T) {
	f := feed(t, 0)
	f.p.grant = 256
	f.n.e.network(f.p).window = largestWindow
	f.part(wire.Part{Seq: 390}, false) // the mask has seven words
	for range 100 {
		_, err := f.n.e.Send(addrOf(0), Message{Len: f.n.e.fragment})
		require.NoError(t, err)
	}
	f.p.rx[Reliable].now = true
	var parts int
	for i, a := range answers(f.n) {
		if a.HasPart {
			require.False(t, a.HasResponse)
			parts++
			continue
		}
		require.Equal(t, 1, i)
		require.Equal(t, Delivered, f.says(&a.Response, 390))
	}
	require.Equal(t, 100, parts)
	require.False(t, f.p.alone)
}

// Packets that are sent at once take one path for up to 16 of them, others each its own.
func TestBursts(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 4 })
	e := w.nodes[0].e
	p := e.peers[0]
	changes := func(n int, gap time.Duration) (changes int) {
		last := uint8(255)
		for range n {
			c := e.choose(p, -1)
			if c != last {
				changes++
			}
			last = c
			e.Now += gap
		}
		return changes
	}
	require.Greater(t, changes(64, 0), 40, "a burst is an eighth of what is under way")
	p.flying = 64
	require.LessOrEqual(t, changes(64, 0), 64/8)
	p.flying = 256
	require.Greater(t, changes(160, 0), 6, "16 at most")
	p.flying = 64
	require.Greater(t, changes(64, 0), 4, "no path has all")
	require.Greater(t, changes(64, time.Microsecond), 40)

	e.Now++
	path := e.choose(p, -1)
	e.network(p).paths[path].suspect = true
	require.NotEqual(t, path, e.choose(p, -1), "a path that is suspect is left")
	e.network(p).paths[path].suspect = false
	for range 3 {
		path = e.choose(p, -1)
		require.NotEqual(t, path, e.choose(p, int(path)), "what is sent again goes by another path")
	}
}

// What a burst found good it does not take from the others: each path by which packets
// came keeps its turn.
func TestBurstsUseWhatTheyTake(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 4 })
	e := w.nodes[0].e
	p := e.peers[0]
	n := e.network(p)
	n.n, n.middle = 0, time.Millisecond
	for i := range uint8(4) {
		n.paths[i].SRTT = time.Millisecond
		for range 4 {
			e.arrived(p, i)
		}
	}
	n.chosen, p.flying = 0, 8*longestBurst
	e.Now++
	for range longestBurst {
		e.choose(p, -1)
	}
	require.EqualValues(t, 12, n.n)
}

// A sender with more to send than it may sends half a window at a time, or a burst, not what each
// response allows.
func TestFewPacketsWait(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.Paths = 4 })
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	n := e.network(p)
	n.window = largestWindow
	post := func(count int) {
		for range count {
			w.model.post(a, 1, Reliable, 64).count = 1 // nothing is carried to the other node
		}
	}
	settle := func(count uint32) int { // so many are acknowledged
		f := p.tx[Reliable]
		w.now += 100 * time.Microsecond
		e.Advance(a.raw())
		e.onResponse(p, &wire.Response{Service: Reliable, Base: f.una + count, Floor: f.una, Grant: p.grant})
		return len(answers(a))
	}
	p.grant = 12
	post(100)
	require.Len(t, answers(a), 12)
	require.Zero(t, settle(1))
	require.Zero(t, settle(4))
	require.Equal(t, 6, settle(1), "half of them")
	p.grant = 100
	require.Equal(t, 82, settle(0), "all that there are")
	post(60)
	require.Zero(t, settle(3), "94 are under way")
	require.Equal(t, 16, settle(7), "a burst")
	post(20)
	require.Zero(t, settle(8))
	n.paths[2].missed, n.paths[2].samples = 8, 20
	require.Equal(t, 9, settle(1), "responses tell of paths")
	n.paths[2].missed = 0
	f := p.tx[Reliable]
	x := &n.paths[slices.IndexFunc([]uint8{0, 1, 2, 3}, func(i uint8) bool { // by which none of the next went
		return f.live.at(f.una).path != i && f.live.at(f.una+1).path != i && f.live.at(f.una+2).path != i
	})]
	x.suspect, n.probeAt = true, never
	require.Zero(t, settle(3), "a probe finds out about it")
	require.True(t, x.suspect)
	x.suspect, x.retired = false, true
	require.Equal(t, 4, settle(1))
	x.retired = false
	require.Equal(t, 51, settle(100), "all that there are")
	p.grant = 54
	w.now += 100 * time.Microsecond
	e.Advance(a.raw())
	post(3)
	require.Len(t, answers(a), 3, "there are no more")
	w.model.post(a, 1, Reliable, 100*e.fragment)
	w.now += 100 * time.Microsecond
	e.Advance(a.raw())
	p.grant += 3
	require.Empty(t, answers(a), "a message of many packets has more than that")
}

// The last number that a flow may use says that none comes behind it, whatever waits: its response
// would be late.
func TestMoreAtTheEndOfTheWindow(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	e, p := a.e, a.e.peers[0]
	p.grant, e.network(p).window = 256, largestWindow
	w.model.post(a, 1, Reliable, 700*e.fragment)
	last, mores := wire.Packet{}, 0
	for range 20 {
		for _, k := range answers(a) {
			if k.HasPart && (!last.HasPart || int32(k.Part.Seq-last.Part.Seq) > 0) {
				last = k
				if k.More {
					mores++
				}
			}
		}
		f := p.tx[Reliable]
		r := wire.Response{Service: Reliable, Base: f.una, Floor: f.una, Grant: 256, NSeen: wire.SeenWords}
		for i := uint32(1); i < f.nxt-f.una; i++ { // all but the first
			r.Seen[i/64] |= 1 << (i % 64)
		}
		e.onResponse(p, &r)
	}
	f := p.tx[Reliable]
	require.EqualValues(t, wire.Window, f.nxt-f.una)
	require.Equal(t, f.nxt-1, last.Part.Seq)
	require.Greater(t, mores, wire.Window/2)
	require.NotEqual(t, none, f.Head, "more waits")
	require.False(t, last.More)
}
