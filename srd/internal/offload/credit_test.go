package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
)

// A sender that comes later has what the others may not use any more of the budget: there is a
// buffer for each packet, however late the receiver looks.
func TestCreditIsGivenOnce(t *testing.T) {
	for seed := uint64(30); seed < 50; seed++ {
		w := newWorld(t, seed, 4, simple())
		b := w.nodes[3]
		for i, n := range w.nodes[:3] {
			w.After(time.Duration(i)*3*time.Millisecond, func() {
				for range 20 {
					w.send(n, 3, engine.Reliable, 20_000)
				}
			})
		}
		for at := time.Duration(0); at < 50*time.Millisecond; at += w.some(3 * time.Millisecond) {
			w.After(at, func() { b.asleep = true })
			at += w.some(time.Millisecond)
			w.After(at, b.wake)
		}
		w.Run(w.Now + time.Second)
		require.Zero(t, w.refused, "seed %d", seed)
		require.Equal(t, 60, w.results[engine.Delivered])
		w.end()
	}
}

// Credit ends with a pause, after which the receiver may have given it to others.
func TestCreditEndsWithAPause(t *testing.T) {
	w := greeted(t, simple())
	p := w.of(0, 1)
	w.send(w.nodes[0], 1, engine.Reliable, 20_000)
	w.Run(w.Now + 5*time.Millisecond)
	require.Greater(t, int(p.grant), w.cfg.First)
	w.Run(w.Now + senderAge)
	w.send(w.nodes[0], 1, engine.Reliable, 20_000)
	require.LessOrEqual(t, p.underWay(), w.nodes[0].m.cfg.First)
	w.Run(w.Now + time.Second)
	w.end()
}
