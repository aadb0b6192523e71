package offload

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Many senders of messages, with memory for one at a time that the program has for a while,
// get it in turn: none waits much longer than all do, and each message is delivered.
func TestMemoryInTurn(t *testing.T) {
	seeds := 64
	if testing.Short() {
		seeds = 8
	}
	for _, senders := range []int{16, 64} {
		worst := 0.0
		for seed := range uint64(seeds) {
			const held = time.Millisecond
			size := []int{20_000, 800}[seed/2%2]
			w := newWorld(t, seed, senders+1, Config{Config: session.Config{Key: &wire.Key{1, seed}, Budget: 300}, Slots: 64})
			hub := w.nodes[0]
			hub.receives, hub.rooms, hub.soon = 400, size, true
			hub.reply = func() {
				hub.used += size
				w.After(held, func() {
					hub.used -= size
					hub.pump()
				})
			}
			all := make([]*letter, senders)
			var sum, longest time.Duration
			n := 0
			for start := w.Now; w.Now < start+2*time.Second; w.Run(w.Now + held/2) {
				for i, l := range all {
					if l != nil && l.status == 0 {
						continue
					}
					if l != nil {
						require.Equal(t, engine.Delivered, l.status)
						sum, longest = sum+l.settle-l.sentAt, max(longest, l.settle-l.sentAt)
						n++
					}
					all[i] = w.send(w.nodes[i+1], 0, []uint8{engine.Reliable, engine.Ordered}[seed%2], size)
				}
			}
			for _, l := range all {
				longest = max(longest, w.Now-l.sentAt)
			}
			require.Greater(t, n, 5*senders)
			worst = max(worst, float64(longest)*float64(n)/float64(sum))
		}
		t.Logf("%d senders: the longest wait is %.2f times the mean", senders, worst)
		require.Less(t, worst, 3.0)
	}
}

// A message that waits for memory costs few packets, and the receiver is not taken for silent,
// however long others have the memory. When some is there, it is delivered soon.
func TestMessageWaitsForMemory(t *testing.T) {
	for service := range uint8(wire.Services) {
		cfg := simple()
		cfg.PeerTimeout = time.Second
		w := greeted(t, cfg)
		a, b := w.nodes[0], w.nodes[1]
		b.rooms, b.soon = 30_000, true // for one message
		b.used = 20_000                // by other senders
		posts := w.posts
		first, second := w.send(a, 1, service, 20_000), w.send(a, 1, service, 20_000)
		w.Run(w.Now + 5*time.Second)
		if service == engine.NoRetransmit {
			require.Equal(t, engine.Retransmit, first.status)
			require.Equal(t, engine.Retransmit, second.status)
			b.used = 0
			w.end()
			continue
		}
		require.Zero(t, first.status)
		require.Zero(t, second.status)
		require.NotZero(t, b.m.Stats.Beyond)
		require.Less(t, w.posts-posts, uint64(160*60), "32 times a second as many as there is credit for")
		b.used = 0
		b.pump()
		w.Run(w.Now + 20*time.Millisecond)
		require.Equal(t, engine.Delivered, first.status)
		require.Equal(t, engine.Delivered, second.status)
		w.end()
	}
}

// A message that is given up while it waits for memory never comes, and holds up no other.
func TestWaitIsGivenUp(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	b.rooms, b.soon, b.used = 30_000, true, 20_000
	first, second := w.send(a, 1, engine.Ordered, 20_000), w.send(a, 1, engine.Ordered, 5_000)
	w.Run(w.Now + 50*time.Millisecond)
	require.Zero(t, second.status)
	a.do(first.life, func() { a.m.Cancel(first.handle) })
	w.Run(w.Now + 200*time.Millisecond)
	require.Equal(t, engine.Cancelled, first.status)
	require.Equal(t, engine.Delivered, second.status)
	require.Empty(t, b.m.waiting)
	b.used = 0
	w.end()
}

// A message that the program leaves no memory for is refused, though it waited for a while.
func TestMemoryThatNeverComes(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	b.rooms, b.soon, b.used = 30_000, true, 20_000
	l := w.send(a, 1, engine.Reliable, 20_000)
	w.Run(w.Now + 50*time.Millisecond)
	require.Zero(t, l.status)
	b.soon = false
	w.Run(w.Now + 300*time.Millisecond)
	require.Equal(t, engine.Refused, l.status)
	b.used = 0
	w.end()
}

// A sender that is gone does not keep those behind it from the memory.
func TestWaitOfOneThatIsGone(t *testing.T) {
	w := newWorld(t, 1, 3, simple())
	hub := w.nodes[0]
	for _, n := range w.nodes[1:] {
		w.send(n, 0, engine.Reliable, 20)
	}
	w.Run(w.Now + 100*time.Millisecond)
	hub.rooms, hub.soon, hub.used = 30_000, true, 20_000
	w.send(w.nodes[1], 0, engine.Reliable, 20_000)
	w.Run(w.Now + 10*time.Millisecond)
	l := w.send(w.nodes[2], 0, engine.Reliable, 20_000)
	w.nodes[1].asleep = true
	w.Run(w.Now + time.Second)
	require.Zero(t, l.status)
	hub.used = 0
	hub.pump()
	w.Run(w.Now + 20*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.nodes[1].wake()
	w.Run(w.Now + time.Second)
	w.end()
}

// Memory that others take and give back at any time, amid the packets of a message, loses none: each
// message of a stream is delivered, also if later ones have the memory first.
func TestMemoryComesAndGoes(t *testing.T) {
	for seed := range uint64(128) {
		cfg := simple()
		cfg.PeerTimeout = time.Second
		w := greeted(t, cfg)
		w.rng = rand.New(rand.NewPCG(seed, 3))
		a, b := w.nodes[0], w.nodes[1]
		r := rand.New(rand.NewPCG(seed, 7))
		b.rooms, b.soon = 30_000, true
		w.patient = true
		service := []uint8{engine.Reliable, engine.Ordered}[seed%2]
		for range 20 {
			size := 20_000
			if r.IntN(3) == 0 {
				size = r.IntN(7000)
			}
			w.send(a, 1, service, size)
		}
		for range 50 {
			b.used += 20_000
			w.Run(w.Now + time.Duration(r.IntN(3000))*time.Microsecond)
			b.used -= 20_000
			b.pump()
			w.Run(w.Now + time.Duration(r.IntN(300))*time.Microsecond)
		}
		w.Run(w.Now + time.Second)
		require.Equal(t, 21, w.results[engine.Delivered], "seed %d: %v", seed, w.results)
		w.end()
	}
}

// A message that would fit waits behind a longer one that does not, whatever its length.
func TestLongMessageIsNotPassedOver(t *testing.T) {
	for _, size := range []int{5_000, 20} {
		w := greeted(t, simple())
		a, b := w.nodes[0], w.nodes[1]
		b.rooms, b.soon, b.used = 30_000, true, 20_000
		long := w.send(a, 1, engine.Reliable, 20_000)
		w.Run(w.Now + 10*time.Millisecond)
		short := w.send(a, 1, engine.Ordered, size)
		w.Run(w.Now + 10*time.Millisecond)
		require.Zero(t, short.count, "%d bytes", size)
		b.used = 0
		b.pump()
		w.Run(w.Now + 200*time.Millisecond)
		require.Equal(t, engine.Delivered, long.status)
		require.Equal(t, engine.Delivered, short.status)
		w.end()
	}
}

// What an ordered flow is told of its messages when memory is short.
func TestShortOfMemory(t *testing.T) {
	begin := func() (a *node, f *rxFlow, part func(seq, index, floor, total uint32)) {
		w := greeted(t, simple())
		a = w.nodes[0]
		a.rooms, a.soon = 500, true
		a.pump()
		p := w.of(0, 1)
		f = &rxFlow{service: engine.Ordered}
		p.rx[engine.Ordered] = f
		return a, f, func(seq, index, floor, total uint32) {
			k := wire.Part{Service: engine.Ordered, Seq: seq, Index: index, Floor: floor, Total: total, Fragment: 100}
			a.m.Receive(addrOf(1).QPN, w.packet(1, 0, wire.Packet{HasPart: true, Part: k}, make([]byte, k.Length())))
		}
	}
	a, f, part := begin() // one that is next takes the memory of one behind it
	part(1, 0, 0, 400)
	part(0, 0, 0, 450)
	require.Equal(t, 450, a.used)
	require.True(t, f.refused.Has(1))
	require.False(t, f.seen.Has(1))

	a, f, part = begin() // one that came again need not come once more
	a.used = 400
	part(1, 0, 0, 200)
	require.True(t, f.refused.Has(1))
	a.used = 0
	part(1, 0, 0, 200)
	part(1, 1, 0, 200)
	require.False(t, f.refused.Has(1))

	a, f, part = begin() // one that has memory is called before another one waits
	a.used = 400
	part(1, 0, 0, 300)
	a.used = 0
	part(2, 0, 0, 300)
	require.Equal(t, 300, a.used)
	require.Nil(t, f.wait)

	a, f, part = begin() // one that was given up gets none
	a.used = 400
	part(1, 0, 0, 300)
	part(3, 0, 2, 200)
	a.used = 0
	a.pump()
	require.Zero(t, a.used)
	require.Nil(t, f.wait)
}
