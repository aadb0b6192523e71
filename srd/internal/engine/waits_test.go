package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// stock is a host with so many bytes of memory.
type stock struct {
	counter
	bytes int
	soon  bool
}

func (s *stock) Soon(int) bool { return s.soon }
func (s *stock) Room(size int) []byte {
	if size > s.bytes {
		return nil
	}
	return make([]byte, size)
}

// Messages that wait for memory are served in the order in which their flows began to wait, whatever
// their length. A sender that is silent is passed over, and a message that nothing is left for.
func TestWaits(t *testing.T) {
	var q Waits
	h := &stock{soon: true}
	var flows [4]*Wait
	now := time.Second
	add := func(flow, number, total int) {
		q.Add(&flows[flow], uint32(flow), uint32(number), &wire.Part{Total: uint32(total), Fragment: 100, Service: uint8(flow % 3)}, now)
	}
	next := func() int {
		w, room := q.Next(h, now)
		if w == nil {
			return -1
		}
		flows[w.Peer] = nil
		if room != nil {
			require.Len(t, room, int(w.Total))
			require.EqualValues(t, w.Peer%3, w.Service)
			return int(w.Number)
		}
		return -2
	}
	require.Equal(t, -1, next())
	add(0, 10, 500)
	add(1, 20, 50)
	add(0, 11, 40)
	add(0, 9, 600)
	add(2, 30, 50)
	h.bytes = 550
	require.Equal(t, -1, next(), "the first one does not fit, and others do")
	h.bytes = 600
	require.Equal(t, 9, next())
	require.Equal(t, 20, next())
	q.Remove(&flows[2], 29)
	require.Equal(t, 30, next())
	require.Equal(t, -1, next())

	add(0, 40, 50)
	q.Remove(&flows[0], 40)
	require.Nil(t, flows[0])
	q.Remove(&flows[0], 40)
	require.Equal(t, -1, next())

	h.bytes = 100
	add(3, 50, 80)
	now += waitAge - 1
	add(2, 60, 80)
	now++
	require.Equal(t, -2, next(), "it is silent")
	require.Equal(t, 60, next())
	add(1, 70, 500)
	h.soon = false
	require.Equal(t, -2, next(), "it is refused when it comes again")
	require.Equal(t, -1, next())
	require.Empty(t, q)
}

// The packet that calls for a message may be lost: then the message comes by itself.
func TestCallIsLost(t *testing.T) {
	w := mtus(t, 4096, 4096, 4096, nil)
	a, b := w.nodes[0], w.nodes[1]
	links := []*link{{delay: 50 * time.Microsecond}, {delay: 50 * time.Microsecond}}
	w.links = func(from, _, _ int) *link { return links[from] }
	b.rooms, b.soon, b.used = 30_000, true, 20_000
	l := w.model.post(a, 1, Reliable, 20_000)
	a.pump()
	w.run(w.now + 500*time.Millisecond)
	require.Zero(t, l.status)
	links[1].dead = true
	b.used = 0
	b.pump()
	w.run(w.now + 100*time.Microsecond)
	links[1].dead = false
	w.run(w.now + 50*time.Millisecond)
	require.Equal(t, Delivered, l.status)
}

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
			cfg := Config{Config: session.Config{Key: &wire.Key{1, seed}}, Paths: 2}
			w := newWorld(t, seed, senders+1, cfg)
			hub := w.nodes[0]
			hub.rooms, hub.soon = size, true
			hub.reply = func(*Delivery) {
				hub.used += size
				w.after(held, func() {
					hub.used -= size
					hub.pump()
				})
			}
			all := make([]*letter, senders)
			var sum, longest time.Duration
			n := 0
			for start := w.now; w.now < start+2*time.Second; w.run(w.now + held/2) {
				for i, l := range all {
					if l != nil && l.status == 0 {
						continue
					}
					if l != nil {
						require.Equal(t, Delivered, l.status)
						sum, longest = sum+l.settle-l.sentAt, max(longest, l.settle-l.sentAt)
						n++
					}
					all[i] = w.model.post(w.nodes[i+1], 0, []uint8{Reliable, Ordered}[seed%2], size)
					w.nodes[i+1].pump()
				}
			}
			for _, l := range all {
				longest = max(longest, w.now-l.sentAt)
			}
			require.Greater(t, n, 5*senders)
			worst = max(worst, float64(longest)*float64(n)/float64(sum))
		}
		t.Logf("%d senders: the longest wait is %.2f times the mean", senders, worst)
		require.Less(t, worst, 3.0)
	}
}

// A message that would fit waits behind a longer one that does not, whatever its length.
func TestLongMessageIsNotPassedOver(t *testing.T) {
	for _, size := range []int{5_000, 20} {
		w := mtus(t, 4096, 4096, 4096, nil)
		a, b := w.nodes[0], w.nodes[1]
		b.rooms, b.soon, b.used = 30_000, true, 20_000
		long := w.model.post(a, 1, Reliable, 20_000)
		a.pump()
		w.run(w.now + 10*time.Millisecond)
		short := w.model.post(a, 1, Ordered, size)
		a.pump()
		w.run(w.now + 10*time.Millisecond)
		require.Zero(t, short.count, "%d bytes", size)
		b.used = 0
		b.pump()
		w.run(w.now + 200*time.Millisecond)
		require.Equal(t, Delivered, long.status)
		require.Equal(t, Delivered, short.status)
	}
}
