package session

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

const (
	second = time.Second
	ms     = time.Millisecond
)

// machine is one that sends nothing but greetings.
type machine struct {
	Sessions
	t         *testing.T
	places    []*Peer
	unsettled map[*Peer]bool
	ticks     map[*Peer]time.Duration // when each is to be looked at again, or absent
	ticked    []*Peer
	said      []string // what the hooks were told
}

func addr(i int) wire.Addr {
	return wire.Addr{GID: [16]byte{15: byte(i)}, QPN: uint32(100 + i), QKey: 7}
}

func newMachine(t *testing.T, i int, change func(*Config)) *machine {
	m := &machine{t: t, unsettled: make(map[*Peer]bool), ticks: make(map[*Peer]time.Duration)}
	cfg := Config{Addr: addr(i), Wall: 1000 * uint64(i+1), MTU: 1500, MaxMessage: 5000, Seed: [32]byte{byte(i)}, MaxPeers: 4, PeerTimeout: second}
	if change != nil {
		change(&cfg)
	}
	cfg.SetDefaults()
	m.Init(cfg, Hooks{
		Make: func(p Peer) *Peer {
			if int(p.Slot) == len(m.places) {
				m.places = append(m.places, new(Peer))
			}
			*m.places[p.Slot] = p
			return m.places[p.Slot]
		},
		Unsettled: func(p *Peer) bool { return m.unsettled[p] },
		Tick: func(p *Peer) time.Duration {
			m.ticked = append(m.ticked, p)
			if at, ok := m.ticks[p]; ok {
				delete(m.ticks, p)
				return at
			}
			return Never
		},
		End: func(*Peer, uint64, *wire.Limits) { m.said = append(m.said, "end") },
		Begin: func(p *Peer) {
			require.Equal(t, wire.VTag(p.Epoch, p.Remote), p.Theirs)
			m.said = append(m.said, "begin")
		},
		Establish: func(p *Peer) {
			require.Equal(t, Established, p.State)
			require.Equal(t, wire.VTag(p.Mine, p.Local), p.Ours)
			m.said = append(m.said, "establish")
		},
		Forget: func(*Peer) { m.said = append(m.said, "forget") },
	})
	return m
}

// told returns what the hooks were told since the last call.
func (m *machine) told() []string {
	said := m.said
	m.said = nil
	return said
}

// next makes the next packet, or returns nil.
func (m *machine) next() (to wire.Addr, packet []byte) {
	b := make([]byte, wire.MaxHeaders)
	if m.Replies() {
		to, n := m.NextReply(b)
		return to, b[:n]
	}
	for p := m.Ready(); p != nil; p = m.Ready() {
		k := wire.Packet{Token: p.Remote, Slot: p.Slot, VTag: p.Ours, Stamp: m.Stamp()}
		switch {
		case p.State == Greeting && m.Now >= p.HelloAt:
			m.Hello(p, &k)
			m.GreetAgain(p, 10*ms)
			b = b[:k.Encode(b)]
			m.Seal(&p.Addr, b, nil)
			return p.Addr, b
		case p.Welcome:
			m.Grant(p, &k)
			return p.Addr, b[:k.Encode(b)]
		}
		m.Dequeue()
	}
	return to, nil
}

// receive handles a packet.
func (m *machine) receive(b []byte) {
	var k wire.Packet
	require.NoError(m.t, k.Decode(b))
	if k.Type == wire.Hello {
		m.Greeted(&k, b)
		return
	}
	p := m.ByToken(k.Token)
	require.NotNil(m.t, p)
	switch k.Type {
	case wire.Challenge:
		m.Challenged(p, k.Challenge)
	case wire.Welcome:
		m.Welcomed(p, &k.Welcome)
	}
}

// carry brings all packets of machines to each other, and returns their types.
func carry(ms ...*machine) (types []wire.Type) {
	for again := true; again; {
		again = false
		for _, m := range ms {
			for to, b := m.next(); b != nil; to, b = m.next() {
				again = true
				types = append(types, wire.Type(b[0]&15))
				for _, other := range ms {
					if other.cfg.Addr == to {
						other.receive(b)
					}
				}
			}
		}
	}
	return types
}

var key = &wire.Key{1, 2}

// Without a key a cookie goes to and fro first. Both ends have the session then, and the limits of
// each other.
func TestGreeting(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		own := func(c *Config) {
			if trusted {
				c.Key = key
			}
		}
		a, b := newMachine(t, 0, own), newMachine(t, 1, own)
		a.Advance(ms)
		b.Advance(ms)
		p := a.Find(addr(1))
		require.Same(t, p, a.Find(addr(1)))
		require.Equal(t, Known, p.State)
		a.Greet(p)
		want := []wire.Type{wire.Hello, wire.Welcome}
		if !trusted {
			want = []wire.Type{wire.Hello, wire.Challenge, wire.Hello, wire.Welcome}
		}
		require.Equal(t, want, carry(a, b))
		q := b.Find(addr(0))
		for _, x := range []*Peer{p, q} {
			require.Equal(t, Established, x.State)
			require.Equal(t, wire.Limits{MTU: 1500, Message: 5000, Remember: 4_000_000, Complete: uint16(1)}, x.Limits)
			require.Zero(t, x.Cookie)
			require.Equal(t, ms, x.Heard.At)
		}
		require.Equal(t, []any{p.Local, p.Remote, p.Ours, p.Theirs, p.Epoch}, []any{q.Remote, q.Local, q.Theirs, q.Ours, uint64(2000)})
		require.Equal(t, []string{"end", "begin", "establish"}, a.told())
		require.Equal(t, []string{"end", "begin", "establish"}, b.told())
		require.EqualValues(t, 1, a.Stats.Sessions)

		// It is still there: only its Welcome comes again.
		a.Advance(2 * ms)
		b.Advance(2 * ms)
		a.Greet(p)
		require.Equal(t, Greeting, p.State)
		require.Equal(t, []wire.Type{wire.Hello, wire.Welcome}, carry(a, b))
		require.Equal(t, []string{"establish"}, a.told())
		require.Empty(t, b.told())
		require.Equal(t, Established, p.State)
		require.Equal(t, Heard{2 * ms, 2 * ms}, p.Heard)
		require.Equal(t, Heard{2 * ms, 2 * ms}, q.Heard)

		// It was forgotten, and begins anew.
		b.Forget(q)
		require.Equal(t, Vacant, q.State)
		require.Nil(t, b.ByToken(q.Local))
		require.Equal(t, []string{"forget"}, b.told())
		a.Greet(p)
		carry(a, b)
		require.Equal(t, []string{"end", "begin", "establish"}, a.told())
		require.Equal(t, []string{"end", "begin", "establish"}, b.told())
	}
}

// A greeting goes again until it has its reply, each time with a later stamp if it is asked for
// again.
func TestGreetingGoesAgain(t *testing.T) {
	a := newMachine(t, 0, nil)
	p := a.Find(addr(1))
	a.Greet(p)
	own := p.Own
	require.Equal(t, a.Wall(), own)
	for i := range 3 {
		_, b := a.next()
		require.NotNil(t, b)
		require.EqualValues(t, i+1, p.Hellos)
		a.Greet(p) // changes nothing
		_, b = a.next()
		require.Nil(t, b)
		require.Equal(t, 10*ms, a.Wait())
		a.Advance(a.raw + 10*ms)
	}
	require.Equal(t, own, p.Own)
	p.State = Known
	a.Greet(p)
	require.Greater(t, p.Own, own)
	require.Zero(t, p.Hellos)
	for range 300 {
		a.Hello(p, new(wire.Packet))
	}
	require.EqualValues(t, 200, p.Hellos)
}

// What an earlier incarnation said is refused, and an incarnation with an earlier clock takes a later
// number.
func TestIncarnations(t *testing.T) {
	a, b := newMachine(t, 0, nil), newMachine(t, 1, nil)
	a.Greet(a.Find(addr(1)))
	carry(a, b)
	q := b.Find(addr(0))
	back := newMachine(t, 0, func(c *Config) { c.Wall = 10 })
	back.Greet(back.Find(addr(1)))
	require.Equal(t, []wire.Type{wire.Hello, wire.Challenge, wire.Hello, wire.Challenge, wire.Hello, wire.Welcome}, carry(back, b), "a cookie is for one incarnation")
	require.EqualValues(t, 1001, q.Epoch)
	require.EqualValues(t, 1, b.Stats.OldEpoch)
	require.Equal(t, Established, back.Find(addr(1)).State)

	// A Welcome of an incarnation before the one that is known.
	p := back.Find(addr(1))
	back.Greet(p)
	require.False(t, back.Welcomed(p, &wire.Granted{Epoch: 1999, Token: 5, Hello: p.Mine}))
	require.EqualValues(t, 1, back.Stats.OldEpoch)
	to, packet := back.next()
	require.Equal(t, addr(1), to)
	var k wire.Packet
	require.NoError(t, k.Decode(packet))
	require.Equal(t, wire.Challenged{Known: 2000}, k.Challenge)
	for _, w := range []wire.Granted{{Epoch: 2000, Token: p.Remote, Hello: p.Mine + 1}, {Epoch: 2000, Hello: p.Mine}, {Token: p.Remote, Hello: p.Mine}} {
		require.False(t, back.Welcomed(p, &w))
	}
	require.True(t, back.Welcomed(p, &wire.Granted{Epoch: 2000, Token: p.Remote, Hello: p.Mine}))

	// A later incarnation of this endpoint is known there.
	for _, known := range []uint64{p.Mine - 1, p.Mine} {
		back.Challenged(p, wire.Challenged{Cookie: 5, Known: known})
		require.Equal(t, Established, p.State)
	}
	back.Challenged(p, wire.Challenged{Cookie: 5, Known: p.Mine + 7})
	require.Equal(t, Greeting, p.State)
	require.EqualValues(t, 1009, p.Mine)
	require.Zero(t, p.Cookie)
	require.True(t, p.Wanted)
}

// Greetings that prove nothing cost nothing that stays.
func TestGreetingsOfUnauthenticatedPeers(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		m := newMachine(t, 1, func(c *Config) {
			if trusted {
				c.Key = key
			}
		})
		greet := func(change func(*wire.Packet)) {
			k := wire.Packet{Type: wire.Hello, Greeting: wire.Greeting{From: addr(0), Epoch: 5, Token: 6, Stamp: 1, Limits: wire.Limits{MTU: 1024}}}
			change(&k)
			b := make([]byte, wire.MaxHeaders)
			b = b[:k.Encode(b)]
			if trusted {
				to := addr(1)
				wire.SetMAC(b, wire.Seal(*key, &to, b, nil)^k.Greeting.MAC)
			}
			require.NoError(t, k.Decode(b))
			p, begun := m.Greeted(&k, b)
			require.Nil(t, p)
			require.False(t, begun)
		}
		greet(func(k *wire.Packet) { k.Greeting.Epoch = 0 })
		greet(func(k *wire.Packet) { k.Greeting.Token = 0 })
		require.EqualValues(t, 2, m.Stats.WrongSource)
		greet(func(k *wire.Packet) { k.Greeting.Cookie = 9 })
		require.EqualValues(t, 1, m.Stats.WrongCookie)
		greet(func(k *wire.Packet) { k.Greeting.MAC = 1 })
		if trusted {
			require.EqualValues(t, 1, m.Stats.WrongKey)
		}
		require.EqualValues(t, 1, m.Stats.WrongCookie, "one without a cookie has no wrong one")
		require.Zero(t, m.Known())
		require.Empty(t, m.told())
	}
}

// hello hands a greeting in, with its cookie, or its code if there is a key.
func (m *machine) hello(g wire.Greeting) (p *Peer, begun bool) {
	k := wire.Packet{Type: wire.Hello, Greeting: g, HasPart: true, Part: wire.Part{Fragment: 1}}
	k.Greeting.Limits = wire.Limits{MTU: 1024}
	k.Greeting.Cookie = m.Cookie(&g)
	b := make([]byte, wire.MaxHeaders)
	b = b[:k.Encode(b)]
	m.Seal(&m.cfg.Addr, b, nil)
	require.NoError(m.t, k.Decode(b))
	p, begun = m.Greeted(&k, b)
	if begun {
		require.Equal(m.t, m.cfg.Key != nil, k.HasPart, "the message of a greeting with a cookie comes again")
	}
	return p, begun
}

// A greeting of the session that there is confirms it. Another token, or a later epoch, begins anew. An earlier
// epoch, or an earlier greeting of the same one, does not.
func TestGreetingsOfOnePeer(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		m := newMachine(t, 1, func(c *Config) {
			if trusted {
				c.Key = key
			}
		})
		g := wire.Greeting{From: addr(0), Epoch: 5000, Token: 6, Stamp: 5000}
		p, begun := m.hello(g)
		require.True(t, begun)
		for i, c := range []struct {
			epoch, token, stamp uint64 // beyond those of the first one
			known, begun, old   bool
		}{
			{stamp: 2, known: true},
			{stamp: 1, known: true}, // it overtook the other one
			{token: 1, stamp: 2, old: true},
			{token: 1, stamp: 1, old: true},
			{token: 1, stamp: 3, known: true, begun: true},
			{epoch: 1, token: 1, stamp: 1, known: true, begun: true},
			{token: 1, stamp: 9, old: true},
			{epoch: 1, token: 1, stamp: 1, known: true},
		} {
			before := m.Stats.OldEpoch
			next := g
			next.Epoch, next.Token, next.Stamp = g.Epoch+c.epoch, g.Token+c.token, g.Stamp+c.stamp
			got, begun := m.hello(next)
			require.Equal(t, c.known, got == p, i)
			require.Equal(t, c.begun, begun, i)
			require.Equal(t, c.old, m.Stats.OldEpoch > before, i)
		}
	}
}

// A peer for which there is no room has no reply. One that begins anew needs none.
func TestGreetingsToAFullTable(t *testing.T) {
	m := newMachine(t, 9, nil)
	g := wire.Greeting{Epoch: 5, Token: 6, Stamp: 7}
	for i := range 4 {
		g.From = addr(i)
		_, begun := m.hello(g)
		require.True(t, begun)
	}
	g.From = addr(4)
	p, begun := m.hello(g)
	require.Nil(t, p)
	require.False(t, begun)
	require.EqualValues(t, 1, m.Stats.Unanswered)
	g.From = addr(3)
	g.Epoch++
	_, begun = m.hello(g)
	require.True(t, begun)
	require.Zero(t, m.Stats.Forgotten)
}

// A Challenge has a greeting sent again at once, unless it says nothing new; an incarnation that is known there already
// makes way for the next one.
func TestChallenges(t *testing.T) {
	m := newMachine(t, 0, nil)
	p := m.Find(addr(1))
	m.Greet(p)
	mine := p.Mine
	for i, c := range []struct {
		challenge wire.Challenged
		again     bool
		mine      uint64
	}{
		{wire.Challenged{Cookie: 5}, true, mine},
		{wire.Challenged{Cookie: 5}, false, mine},
		{wire.Challenged{Cookie: 6}, true, mine},
		{wire.Challenged{Cookie: 6, Known: mine - 1}, true, mine},
		{wire.Challenged{Cookie: 6, Known: mine}, true, mine + 1},
		{wire.Challenged{Cookie: 6, Known: mine + 5}, true, mine + 6},
	} {
		m.next()
		m.GreetAgain(p, second)
		_, b := m.next()
		require.Nil(t, b)
		m.Challenged(p, c.challenge)
		_, b = m.next()
		require.Equal(t, c.again, b != nil, i)
		require.Equal(t, c.mine, p.Mine, i)
	}
	p.State = Known
	m.Challenged(p, wire.Challenged{Cookie: 9, Known: 2 * mine})
	require.Equal(t, mine+6, p.Mine, "it did not greet")
}

// A Welcome goes on with the session that there is, or begins another one, and has what waits sent.
func TestWelcomes(t *testing.T) {
	m := newMachine(t, 0, nil)
	p := m.Find(addr(1))
	m.Greet(p)
	for _, w := range []wire.Granted{{Token: 6, Hello: p.Mine}, {Epoch: 5, Hello: p.Mine}, {Epoch: 5, Token: 6}} {
		require.False(t, m.Welcomed(p, &w))
	}
	for i, c := range []struct {
		epoch, token uint64
		told         []string
	}{
		{5, 6, []string{"end", "begin", "establish"}},
		{5, 6, []string{"establish"}},
		{5, 7, []string{"end", "begin", "establish"}},
		{6, 7, []string{"end", "begin", "establish"}},
	} {
		m.Advance(time.Duration(i) * ms)
		m.Greet(p)
		m.Dequeue()
		require.True(t, m.Welcomed(p, &wire.Granted{Epoch: c.epoch, Token: c.token, Hello: p.Mine}))
		require.Equal(t, c.told, m.told(), i)
		require.Same(t, p, m.Ready())
		require.Equal(t, m.Now, p.Heard.At)
	}
}

// Replies to unauthenticated peers have a rate: a burst, and then one each ReplyInterval.
func TestReplies(t *testing.T) {
	m := newMachine(t, 0, nil)
	took := func() (n int) {
		b := make([]byte, wire.MaxHeaders)
		for ; m.Replies(); n++ {
			m.NextReply(b)
		}
		return n
	}
	for range 40 {
		m.Reply(Reply{Type: wire.Reset})
	}
	require.Zero(t, m.Wait())
	require.Equal(t, 32, took(), "as many as the queue has room for")
	for range 40 {
		m.Reply(Reply{Type: wire.Challenge})
	}
	require.Equal(t, ReplyBurst-32, took())
	require.EqualValues(t, []uint64{32, 32, 16}, []uint64{m.Stats.Resets, m.Stats.Challenges, m.Stats.Unanswered})
	require.EqualValues(t, 64, m.Stats.Sent)
	m.Advance(3 * ReplyInterval)
	for range 10 {
		m.Reply(Reply{Type: wire.Challenge})
	}
	require.Equal(t, 3, took())
	for _, n := range []int{0, 1} { // what comes too early does not put the next one off
		m.Advance(m.raw + ReplyInterval*6/10)
		m.Reply(Reply{Type: wire.Challenge})
		require.Equal(t, n, took())
	}
}

// Replies go to their senders, in their order.
func TestRepliesInOrder(t *testing.T) {
	m := newMachine(t, 0, nil)
	b := make([]byte, wire.MaxHeaders)
	for i := range ReplyBurst / 3 {
		for k := range 3 {
			m.Reply(Reply{To: addr(3*i + k), Type: wire.Reset, Token: uint64(i), Reset: uint64(k)})
		}
		for k := range 3 {
			to, n := m.NextReply(b)
			var p wire.Packet
			require.NoError(t, p.Decode(b[:n]))
			require.Equal(t, []any{addr(3*i + k), wire.Reset, uint64(i), uint64(k)}, []any{to, p.Type, p.Token, p.Reset})
		}
	}
}

// A peer counts as a sender from its first packet until it stops, or leaves. A few looks find one that
// stopped among others.
func TestSenders(t *testing.T) {
	m := newMachine(t, 0, nil)
	require.Nil(t, m.Stopped())
	var peers []*Peer
	for i := range 4 {
		p := m.Find(addr(i))
		require.True(t, m.Enter(p))
		require.False(t, m.Enter(p))
		peers = append(peers, p)
	}
	require.Equal(t, peers, m.Senders)
	require.True(t, m.Leave(peers[1]))
	require.False(t, m.Leave(peers[1]))
	require.ElementsMatch(t, []*Peer{peers[0], peers[2], peers[3]}, m.Senders)
	m.Wait()
	m.Advance(SenderAge)
	for range m.Senders {
		require.Nil(t, m.Stopped())
	}
	m.Hears(peers[0])
	m.Hears(peers[3])
	m.Advance(m.raw + 1)
	found := make(map[*Peer]int)
	for range 2 * len(m.Senders) {
		found[m.Stopped()]++
	}
	require.Equal(t, map[*Peer]int{nil: 4, peers[2]: 2}, found)
}

// Zero values stand for defaults, and nothing else does.
func TestDefaults(t *testing.T) {
	var c Config
	c.SetDefaults()
	require.Equal(t, Config{AckDelay: 500 * time.Microsecond, PeerTimeout: 5 * second, EvictAge: 20 * second,
		MTU: 4096, MaxPeers: 1 << 16, MaxMessage: 1 << 20, First: 4}, c)
	all := Config{AckDelay: 1, PeerTimeout: 2, EvictAge: 3, MTU: 5, MaxPeers: 6, MaxMessage: 7, First: 8}
	c = all
	c.SetDefaults()
	require.Equal(t, all, c)
	m := newMachine(t, 0, func(c *Config) { c.MaxPeers = maxSlots + 1 })
	require.Equal(t, maxSlots, m.cfg.MaxPeers)
}

// Packets are of the peer that their token was given to, and of no other.
func TestTokens(t *testing.T) {
	m := newMachine(t, 0, nil)
	m.Expect(100)
	for i := range 4 {
		p := m.Find(addr(i))
		require.Same(t, p, m.ByToken(p.Local))
		for bit := range 64 {
			require.Nil(t, m.ByToken(p.Local^1<<bit), "slot %d, bit %d", p.Slot, bit)
		}
	}
	require.Equal(t, 100, cap(m.peers))
}

// Limits say for how long no peer was forgotten, by a clock that runs on while the host is suspended.
func TestComplete(t *testing.T) {
	boot := 7 * ms
	m := newMachine(t, 0, func(c *Config) { c.Boot = func() time.Duration { return boot } })
	require.Zero(t, m.limits().Complete)
	p := m.Find(addr(1))
	boot += 5 * ms
	require.EqualValues(t, 5, m.limits().Complete)
	m.Forget(p)
	require.Zero(t, m.limits().Complete)
}

// Each peer is looked at when it wants to be, or a microsecond later if it wants to be at once, and
// the earliest first.
func TestTimers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := newMachine(t, 0, func(c *Config) { c.MaxPeers = 50 })
	var peers []*Peer
	for i := range 50 {
		peers = append(peers, m.Find(addr(i)))
	}
	require.Equal(t, Never, m.Wait())
	want := make(map[*Peer]time.Duration)
	for range 1000 {
		for range rng.IntN(4) {
			p, at := peers[rng.IntN(50)], m.Now+time.Duration(1+rng.IntN(20))*ms
			m.Wake(p, at)
			if old, ok := want[p]; !ok || at < old {
				want[p] = at
			}
		}
		if len(want) == 0 {
			continue
		}
		first := Never
		for _, at := range want {
			first = min(first, at)
		}
		require.Equal(t, first-m.Now, m.Wait())
		require.Len(t, m.timers, len(want))
		m.Advance(m.raw + m.Wait())
		for _, p := range m.ticked {
			require.Equal(t, m.Now, want[p])
			delete(want, p)
		}
		require.NotEmpty(t, m.ticked)
		m.ticked = m.ticked[:0]
	}
	p := peers[0]
	m.ticks[p] = m.Now // at once
	m.Wake(p, m.Now)
	m.Advance(m.raw)
	require.Equal(t, m.Now+time.Microsecond, p.WakeAt)
	m.Forget(p)
	for _, q := range peers[1:] {
		m.Wake(q, m.Now+ms)
	}
	m.ticked = nil
	m.Advance(m.raw + ms)
	require.NotContains(t, m.ticked, p)
	require.Len(t, m.ticked, 49)
	require.Nil(t, m.Ready(), "none of them greets")
}

// A peer that is looked at before its greeting is due is greeted in time nevertheless, and no sooner.
func TestLookBeforeAGreeting(t *testing.T) {
	m := newMachine(t, 0, nil)
	p := m.Find(addr(1))
	m.Greet(p)
	m.Dequeue()
	m.GreetAgain(p, 10*ms)
	m.Wake(p, 4*ms)
	m.Advance(4 * ms)
	require.Equal(t, []*Peer{p}, m.ticked)
	require.Nil(t, m.Ready())
	require.Equal(t, 6*ms, m.Wait())
	m.Advance(10 * ms)
	require.Same(t, p, m.Ready())
}

// The clock goes on by what Wait said, and a sixteenth of PeerTimeout more at most: what jumps is not
// time in which a peer was silent.
func TestClock(t *testing.T) {
	m := newMachine(t, 0, func(c *Config) { c.Raw = 50 * second })
	m.Wait()
	m.Advance(51 * second)
	require.Equal(t, second, m.Now, "it slept for as long as it liked")
	m.Wake(m.Find(addr(1)), m.Now+10*ms)
	m.Wait()
	m.Advance(60 * second)
	require.Equal(t, second+10*ms+second/16, m.Now)
	m.Advance(59 * second)
	require.Equal(t, second+10*ms+second/16, m.Now)
	m.Advance(59*second + ms)
	require.Equal(t, second+11*ms+second/16, m.Now)
	require.EqualValues(t, 1000+9*second+ms, m.Wall())
	require.EqualValues(t, m.Now/time.Microsecond, m.Stamp())

	for range 2 { // there is nothing to do for ever, or something at once
		now := m.Now
		require.Equal(t, Never-now, m.Wait())
		m.Advance(m.raw + 10*second)
		require.Equal(t, now+10*second, m.Now)
		m.Wait()
		now = m.Now
		m.Enqueue(m.Find(addr(1)))
		require.Zero(t, m.Wait())
		m.Advance(m.raw + 10*second)
		require.Equal(t, now+second/16, m.Now)
		m.Dequeue()
	}
}

// Peers that have something to send take turns, and one that is done leaves.
func TestTurns(t *testing.T) {
	m := newMachine(t, 0, nil)
	a, b, c := m.Find(addr(1)), m.Find(addr(2)), m.Find(addr(3))
	for _, p := range []*Peer{a, b, a, c} {
		m.Enqueue(p)
	}
	require.Zero(t, m.Wait())
	var order []*Peer
	for range 2 * turnLength {
		order = append(order, m.Ready())
		m.Turn(m.Ready(), false)
	}
	require.Equal(t, slices.Concat(slices.Repeat([]*Peer{a}, turnLength), slices.Repeat([]*Peer{b}, turnLength)), order)
	require.Same(t, c, m.Ready())
	m.Turn(c, true)
	require.Same(t, a, m.Ready())
	require.False(t, c.queued)
	m.Enqueue(c)
	m.Forget(b)
	require.ElementsMatch(t, []*Peer{a, c}, []*Peer{m.Dequeue(), m.Dequeue()})
	require.Nil(t, m.Ready())
}

// A table that is full forgets a peer that was silent for EvictAge and has nothing under way.
func TestFullTable(t *testing.T) {
	m := newMachine(t, 0, nil)
	var peers []*Peer
	for i := range 4 {
		peers = append(peers, m.Find(addr(i+1)))
	}
	m.Wait()
	m.Advance(m.cfg.EvictAge)
	require.Nil(t, m.Find(addr(9)))
	m.Wait()
	m.Advance(m.raw + m.cfg.EvictAge)
	for _, p := range peers[:3] {
		m.unsettled[p] = true
	}
	m.unsettled[peers[1]] = false
	m.Hears(peers[1])
	peers[1].Limits.Remember = 1
	require.False(t, m.Forgets(peers[1]))
	peers[1].Limits.Remember = 0
	require.True(t, m.Forgets(peers[1]))
	p := m.Find(addr(9))
	require.NotNil(t, p)
	require.Same(t, peers[3], p)
	require.Equal(t, addr(9), p.Addr)
	require.EqualValues(t, 1, m.Stats.Forgotten)
	require.Nil(t, m.Find(addr(10)))
}
