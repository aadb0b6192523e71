package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// quiet is a host that takes everything and keeps nothing.
type quiet struct{ settled, delivered int }

func (q *quiet) Room(int) []byte                 { return make([]byte, 4096) }
func (q *quiet) Soon(int) bool                   { return false }
func (q *quiet) Deliver(*Delivery, bool) bool    { q.delivered++; return true }
func (q *quiet) Drop([]byte)                     {}
func (q *quiet) Settled(*Result)                 { q.settled++ }
func (q *quiet) PartSettled(uint64, int, Status) {}
func (q *quiet) Pressure() uint8                 { return 0 }
func direct(cfg Config, i int) (*Engine, *quiet) {
	q := new(quiet)
	cfg.Addr, cfg.Host, cfg.Wall = addrOf(i), q, 1<<60
	cfg.Seed[0] = byte(i)
	return New(cfg), q
}

// carry brings everything from one engine to the other, and back, until both are quiet.
func carry(a, b *Engine, now time.Duration, buf []byte) (packets int) {
	var o Out
	for moved := true; moved; {
		moved = false
		for _, d := range [2][2]*Engine{{a, b}, {b, a}} {
			d[0].Advance(now)
			for d[0].Next(buf, &o) {
				moved = true
				packets++
				d[1].Advance(now)
				d[1].Receive(Source{GID: d[0].cfg.Addr.GID, QPN: d[0].cfg.Addr.QPN}, buf[:o.Headers+o.Length])
			}
		}
	}
	return packets
}

// A message between peers that know each other allocates nothing.
func TestWarmPathDoesNotAllocate(t *testing.T) {
	a, qa := direct(simple(4), 0)
	b, qb := direct(simple(4), 1)
	buf := make([]byte, 2048)
	now := time.Millisecond
	round := func() {
		for range 8 {
			if _, err := a.Send(b.cfg.Addr, Message{Len: 64, Now: true}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Send(a.cfg.Addr, Message{Len: 64, Service: Ordered}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			carry(a, b, now, buf)
			now += 100 * time.Microsecond
		}
	}
	for range 100 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(100, round))
	require.Equal(t, qa.settled, qb.delivered)
	require.Equal(t, 8*201, qa.settled)
}

// A reply carries the response: a question and its reply are two packets.
func TestResponsesRideAlong(t *testing.T) {
	a, qa := direct(simple(1), 0)
	b, qb := direct(simple(1), 1)
	buf := make([]byte, 2048)
	now := time.Millisecond
	packets := 0
	for i := range 100 {
		from, to, q := a, b, qb
		if i%2 == 1 {
			from, to, q = b, a, qa
		}
		_, err := from.Send(to.cfg.Addr, Message{Len: 64})
		require.NoError(t, err)
		before := q.delivered
		n := carry(a, b, now, buf)
		require.Equal(t, before+1, q.delivered)
		if i > 2 {
			packets += n
		}
		now += 20 * time.Microsecond
	}
	require.Equal(t, 97, packets)
}

// One response acknowledges all packets that arrived together.
func TestOneResponsePerBatch(t *testing.T) {
	w := settledPair(t, func(c *Config) { c.MinTimeout = 20 * time.Millisecond })
	b := w.nodes[1].e
	w.model.post(w.nodes[0], 1, Reliable, 3*int(b.fragment))
	before := b.Stats.Responses
	w.nodes[0].pump()
	w.run(w.now + 10*time.Millisecond)
	require.Zero(t, w.model.open)
	require.Equal(t, before+1, b.Stats.Responses)
}

// Ten thousand peers that are idle cost no more than 512 bytes each.
func TestIdlePeers(t *testing.T) {
	n := 10000
	if racing && testing.Short() {
		n = 6000
	}
	hub, q := direct(Config{Config: session.Config{MaxPeers: 2 * n}, Paths: 4}, 0)
	_ = q
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	buf := make([]byte, 8192)
	now := time.Millisecond
	before := heap()
	for i := range n {
		peer, _ := direct(Config{Paths: 4}, i+1)
		_, err := peer.Send(hub.cfg.Addr, Message{Len: 64, Now: true})
		require.NoError(t, err)
		_, err = hub.Send(peer.cfg.Addr, Message{Len: 64, Now: true})
		require.NoError(t, err)
		for range 3 {
			now += time.Millisecond
			carry(hub, peer, now, buf)
		}
	}
	for range 100 {
		now += 100 * time.Millisecond
		hub.Advance(now)
	}
	require.Len(t, hub.peers, n)
	require.Equal(t, n, hub.cfg.Host.(*quiet).delivered)
	require.Equal(t, n, hub.cfg.Host.(*quiet).settled)
	each := float64(heap()-before) / float64(n)
	t.Logf("%.0f bytes a peer", each)
	require.LessOrEqual(t, each, 512.0)
	runtime.KeepAlive(hub)
}

// Thirty-two senders fill the link of their receiver, and do not drown it.
func TestIncast(t *testing.T) {
	const senders = 32
	cfg := simple(4)
	cfg.Budget = 256
	w := newWorld(t, 1, senders+1, cfg)
	shared := &link{delay: 50 * time.Microsecond, each: 10 * time.Microsecond, limit: 4 * time.Millisecond}
	back := &link{delay: 50 * time.Microsecond}
	w.links = func(_, to, _ int) *link {
		if to == 0 {
			return shared
		}
		return back
	}
	for i := 1; i <= senders; i++ {
		for range 20 {
			w.model.post(w.nodes[i], 0, Reliable, 40000)
		}
		w.nodes[i].pump()
	}
	span := 300 * time.Millisecond
	if racing && testing.Short() {
		span = 150 * time.Millisecond
	}
	var again uint64
	w.run(w.now + span)
	bytes := 0
	for _, l := range w.model.sent {
		bytes += l.count * l.size
	}
	for _, n := range w.nodes {
		again += n.e.Stats.Retransmitted
	}
	share := float64(bytes) / float64(span/shared.each) / float64(w.nodes[0].e.fragment)
	t.Logf("%.3f of the link, %d packets sent again, %d lost", share, again, shared.lost)
	require.Greater(t, share, 0.9)
	require.Less(t, shared.lost, shared.sent/50)
}

// Ten thousand nodes in one network.
func TestManyNodes(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 1000
	}
	if racing && testing.Short() {
		n = 200
	}
	cfg := simple(4)
	cfg.Key = &wire.Key{1, 2}
	w := newWorld(t, 1, n, cfg)
	l := &link{delay: 50 * time.Microsecond, loss: 0.01}
	w.links = func(int, int, int) *link { return l }
	for i, node := range w.nodes {
		for _, to := range []int{i + 1, i * 7, i + n/2} {
			if to %= n; to != i {
				w.model.post(node, to, uint8(i%2), 2000)
			}
		}
		node.pump()
	}
	w.run(w.now + 2*time.Second)
	w.model.end()
	require.Equal(t, len(w.model.sent), w.model.results[Delivered])
}

// Peers take turns, and so do the flows of one.
func TestTurns(t *testing.T) {
	a, _ := direct(Config{Paths: 1}, 0)
	buf := make([]byte, 8192)
	now := time.Millisecond
	for i := 1; i < 3; i++ {
		b, _ := direct(Config{Paths: 1}, i)
		_, err := a.Send(b.cfg.Addr, Message{Len: 64})
		require.NoError(t, err)
		carry(a, b, now, buf)
		now += time.Millisecond
		carry(a, b, now, buf)
	}
	for _, p := range a.peers {
		p.grant = wire.Window
		a.network(p).window = largestWindow
		for _, s := range []uint8{Ordered, Reliable} {
			for range 50 {
				_, err := a.Send(p.Addr, Message{Len: 64, Service: s, Tag: uint64(s)})
				require.NoError(t, err)
			}
		}
	}
	a.Advance(now)
	peers, services := make(map[wire.Addr]int), make(map[uint64]int)
	for range 32 {
		var o Out
		require.True(t, a.Next(buf, &o))
		peers[o.To]++
		services[o.Tag]++
	}
	require.Len(t, peers, 2)
	for to, n := range peers {
		require.Equal(t, 16, n, "peer %d", idOf(to))
	}
	require.Equal(t, 16, services[Ordered])
}
