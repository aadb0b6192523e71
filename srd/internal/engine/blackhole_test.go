package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// One of four links dies in both directions at any moment, amid messages of all kinds that are
// as long as bursts: none takes longer than two timers and a little. (A timer waited for bursts
// that others had begun meanwhile.)
func TestDeadLinkAmidBursts(t *testing.T) {
	longest := time.Duration(0)
	for seed := range uint64(16) {
		longest = max(longest, deadLink(t, seed))
	}
	t.Logf("the longest message took %v", longest)
	require.Less(t, longest, 12*time.Millisecond)
}

// deadLink returns how long the longest message took that was sent before or after the link died.
func deadLink(t *testing.T, seed uint64) (longest time.Duration) {
	r := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t, seed, 2, Config{Config: session.Config{MTU: 1024}, Paths: 4 << r.IntN(2)})
	links := map[[2]int]*link{}
	w.links = func(from, _, path int) *link {
		k := [2]int{from, path % 4}
		if links[k] == nil {
			links[k] = &link{delay: 50 * time.Microsecond, jitter: 20 * time.Microsecond}
		}
		return links[k]
	}
	post := func(n *node) {
		service := uint8(r.IntN(wire.Services))
		w.model.post(n, 1-n.id, service, []int{64, 3000, 20000}[r.IntN(3)])
	}
	stop := false
	w.model.onSettled = func(l *letter) {
		longest = max(longest, l.settle-l.sentAt)
		l.body = nil
		n := w.nodes[l.from]
		n.later = append(n.later, func() {
			w.after(time.Duration(r.IntN(300))*time.Microsecond, func() {
				if !stop {
					post(n)
					n.pump()
				}
			})
		})
	}
	for range 1 + r.IntN(8) {
		post(w.nodes[0])
		post(w.nodes[1])
	}
	w.nodes[0].pump()
	w.nodes[1].pump()
	w.run(20*time.Millisecond + time.Duration(r.IntN(10000))*time.Microsecond)
	dies := r.IntN(4)
	for from := range 2 {
		w.links(from, 1-from, dies).dead = true
	}
	w.run(w.now + 40*time.Millisecond)
	stop = true
	w.run(w.now + time.Second)
	require.Zero(t, w.model.open)
	return longest
}
