package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// mtus is a pair of nodes with links that carry packets of so many bytes, and a way between them
// that loses longer ones than path.
func mtus(t *testing.T, a, b, path int, key *wire.Key) (w *world) {
	cfg := simple(2)
	cfg.Key, cfg.MaxMessage = key, 1<<20
	w = newWorld(t, 1, 2, cfg)
	w.short = true
	w.nodes[0].mtu, w.nodes[1].mtu = a, b
	for _, n := range w.nodes {
		n.start(0)
	}
	w.now += time.Millisecond
	l := &link{delay: 50 * time.Microsecond, lose: func(p []byte) bool { return len(p) > path }}
	w.links = func(int, int, int) *link { return l }
	return w
}

// Packets are as long as the shorter of both ends' links carries, and messages of any length
// arrive either way, whichever end begins.
func TestMTUsDiffer(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		for _, m := range [][2]int{{4096, 1024}, {1024, 4096}, {2048, 512}, {256, 1024}} {
			for _, first := range []int{20_000, 64} {
				w := mtus(t, m[0], m[1], min(m[0], m[1]), key)
				for _, size := range []int{first, 64, 900, 2000, 20_000} {
					for from, n := range w.nodes {
						l := w.model.post(n, 1-from, Reliable, size)
						n.pump()
						w.run(w.now + time.Second)
						require.Equal(t, Delivered, l.status, "%d bytes from %d with %v", size, from, m)
					}
				}
				for _, n := range w.nodes {
					require.EqualValues(t, min(m[0], m[1])-wire.Overhead, n.e.peers[0].Fragment)
					if min(m[0], m[1]) >= wire.SmallMTU {
						require.Zero(t, n.e.Stats.Timeouts)
					}
				}
			}
		}
	}
}

// A message that is longer than the receiver accepts is not sent, and has an error of its own.
func TestTooLargeMessages(t *testing.T) {
	w := mtus(t, 1024, 1024, 1024, nil)
	a := w.nodes[0]
	l := w.model.post(a, 1, Reliable, 1<<20+1)
	most := w.model.post(a, 1, Reliable, 1<<20)
	a.pump()
	w.run(w.now + time.Second)
	require.Equal(t, TooLarge, l.status)
	require.Zero(t, w.nodes[1].e.Stats.Refused, "it was sent")
	require.Equal(t, Delivered, most.status)
	_, err := a.e.Send(addrOf(1), Message{Len: 1<<20 + 1})
	require.Equal(t, TooLargeError{Limit: 1 << 20}, err)
}

// A path that loses long packets is found out, with small messages under way or without: what
// is sent in long packets ends with an error of its own, and later messages arrive.
func TestPathLosesLongPackets(t *testing.T) {
	for _, others := range []bool{false, true} {
		for _, service := range []uint8{Reliable, Ordered} {
			w := mtus(t, 4096, 4096, 2000, nil)
			a := w.nodes[0]
			l := w.model.post(a, 1, service, 20_000)
			a.pump()
			start := w.now
			for range 40 {
				if others {
					w.model.post(a, 1, Reliable, 64)
					a.pump()
				}
				w.run(w.now + 25*time.Millisecond)
			}
			require.Equal(t, PathMTU, l.status, "service %d, others %v", service, others)
			require.Less(t, l.settle-start, 700*time.Millisecond, "PeerTimeout is a second")
			again := w.model.post(a, 1, service, 800)
			large := w.model.post(a, 1, Reliable, 20_000)
			a.pump()
			w.run(w.now + time.Second)
			require.Equal(t, Delivered, again.status)
			require.Equal(t, Delivered, large.status)
			require.NotZero(t, w.model.results[Delivered])
			require.Zero(t, w.model.results[Unresponsive])
			require.Zero(t, a.e.peers[0].longs)
		}
	}
}

// What loses packets of any length, or all of them for a while, is not taken for that.
func TestLossIsNoMTU(t *testing.T) {
	for seed := range uint64(8) {
		cfg := simple(4)
		cfg.MTU = 4096
		w := newWorld(t, seed, 2, cfg)
		links := make(map[int]*link)
		w.links = func(from, _, path int) *link {
			k := 2*path + from
			if links[k] == nil {
				links[k] = &link{delay: 50 * time.Microsecond, loss: 0.4}
			}
			return links[k]
		}
		for i := range 20 {
			w.model.post(w.nodes[0], 1, Reliable, 20_000)
			w.nodes[0].pump()
			dead := i%3 == 0
			for _, l := range links {
				l.dead = dead
			}
			w.run(w.now + 700*time.Millisecond)
			for _, l := range links {
				l.dead = false
			}
			w.run(w.now + time.Second)
		}
		w.run(w.now + 5*time.Second)
		require.Zero(t, w.model.open)
		require.Zero(t, w.model.results[PathMTU])
		require.Zero(t, w.nodes[0].e.peers[0].longs)
	}
}

// Nor is it in a long stream, in which some packets are always under way.
func TestLossOfAStreamIsNoMTU(t *testing.T) {
	cfg := simple(2)
	cfg.MTU = 4096
	w := newWorld(t, 1, 2, cfg)
	l := &link{delay: 5 * time.Millisecond, loss: 0.3}
	w.links = func(int, int, int) *link { return l }
	for range 1200 {
		w.model.post(w.nodes[0], 1, Reliable, 20_000)
	}
	w.nodes[0].pump()
	for w.model.open > 0 && w.now < time.Minute {
		w.run(w.now + time.Second)
	}
	require.Greater(t, w.now, 2*time.Second)
	require.Zero(t, w.model.results[PathMTU])
	require.Zero(t, w.model.open)
}

// A peer that has no memory for messages loses their packets, which are long, and says so.
func TestLackOfMemoryIsNoMTU(t *testing.T) {
	w := mtus(t, 4096, 4096, 4096, nil)
	full := true
	l := &link{delay: 50 * time.Microsecond, lose: func(p []byte) bool { return full && len(p) > 2000 }}
	w.links = func(int, int, int) *link { return l }
	w.nodes[1].pressure = 255
	a := w.nodes[0]
	w.model.post(a, 1, Reliable, 64)
	a.pump()
	w.run(w.now + 10*time.Millisecond)
	large := w.model.post(a, 1, Reliable, 20_000)
	for range 40 {
		w.model.post(a, 1, Reliable, 64)
		a.pump()
		w.run(w.now + 20*time.Millisecond)
	}
	full = false
	w.run(w.now + time.Second)
	require.Equal(t, Delivered, large.status)
	require.Zero(t, w.model.results[PathMTU])
}

// A message that waits for memory at its receiver is neither taken for one that is too long for the
// path, nor the receiver for silent, however long others have the memory. A lack that is short
// costs little, also after a long one.
func TestMessageWaitsForMemory(t *testing.T) {
	for _, service := range []uint8{Reliable, Ordered} {
		w := mtus(t, 4096, 4096, 4096, nil)
		a, b := w.nodes[0], w.nodes[1]
		b.rooms, b.soon = 30_000, true // for one message
		b.used = 20_000                // by other senders
		first, second := w.model.post(a, 1, service, 20_000), w.model.post(a, 1, service, 20_000)
		a.pump()
		w.run(w.now + 5*time.Second)
		require.Zero(t, w.model.results)
		require.NotZero(t, b.e.Stats.Beyond)
		require.Less(t, b.e.Stats.Beyond, uint64(2000), "ten packets, 32 times a second")
		b.used = 0
		b.reply = func(*Delivery) {
			b.used, b.reply = b.used+20_000, nil
			w.after(5*time.Millisecond, func() {
				b.used -= 20_000
				b.pump()
			})
		}
		b.pump()
		w.run(w.now + 60*time.Millisecond)
		require.Equal(t, Delivered, first.status)
		require.Equal(t, Delivered, second.status)
		require.Less(t, (second.settle - first.settle).Abs(), 15*time.Millisecond)
		require.NotEqual(t, uint8(NoMemory), a.e.peers[0].net.pressure)
		require.Zero(t, w.model.open)
	}
}

// Memory that others take and give back at any time, amid the packets of a message, costs a stream
// of messages little more than the time without it.
func TestMemoryComesAndGoes(t *testing.T) {
	for seed := range uint64(64) {
		w := mtus(t, 4096, 4096, 4096, nil)
		a, b := w.nodes[0], w.nodes[1]
		r := rand.New(rand.NewPCG(seed, 7))
		b.rooms, b.soon = 30_000, true
		service := []uint8{Reliable, Ordered}[seed%2]
		for range 20 {
			w.model.post(a, 1, service, 20_000)
		}
		a.pump()
		for range 50 {
			b.used += 20_000
			w.run(w.now + time.Duration(r.IntN(3000))*time.Microsecond)
			b.used -= 20_000
			b.pump()
			w.run(w.now + time.Duration(r.IntN(300))*time.Microsecond)
		}
		w.run(w.now + 2*time.Second)
		require.Zero(t, w.model.results[Unresponsive], "seed %d", seed)
		require.Zero(t, w.model.open, "seed %d: %+v", seed, w.model.results)
	}
}
