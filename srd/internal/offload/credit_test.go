package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
)

// A sender that comes later has what the other one may not use any more of the budget: there is a
// buffer for each packet, though the receiver falls asleep before it has told the other one.
func TestCreditIsGivenOnce(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed, 3, simple())
		first, later, b := w.nodes[0], w.nodes[1], w.nodes[2]
		w.send(later, 2, engine.Reliable, 20)
		w.Run(w.Now + 2*session.SenderAge)
		for range 20 {
			w.send(first, 2, engine.Reliable, 20_000)
		}
		for int(w.of(0, 2).grant) < w.cfg.Budget {
			w.Run(w.Now + time.Microsecond)
		}
		for range 5 {
			w.send(later, 2, engine.Reliable, 20_000)
		}
		for told := w.of(2, 1).told; w.of(2, 1).told == told; {
			w.Run(w.Now + time.Microsecond)
		}
		b.asleep = true
		w.Run(w.Now + 20*time.Millisecond)
		require.Zero(t, w.refused, "seed %d", seed)
		b.wake()
		w.Run(w.Now + time.Second)
		require.Equal(t, 26, w.results[engine.Delivered])
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
	w.Run(w.Now + session.SenderAge)
	w.send(w.nodes[0], 1, engine.Reliable, 20_000)
	require.LessOrEqual(t, p.underWay(), w.nodes[0].m.cfg.First)
	w.Run(w.Now + time.Second)
	w.end()
}

// What a sender was told long ago and does not use is given to others.
func TestCreditThatIsNotUsed(t *testing.T) {
	w := newWorld(t, 1, 3, simple())
	budget := w.cfg.Budget
	slow, fast := w.nodes[0], w.nodes[1]
	for range 10 {
		w.send(slow, 2, engine.Reliable, 20_000)
	}
	w.Run(w.Now + 20*time.Millisecond)
	require.Greater(t, int(w.of(0, 2).grant), budget/2)
	for range 2 * session.SenderAge / (10 * time.Millisecond) {
		w.send(slow, 2, engine.Reliable, 20)
		w.send(fast, 2, engine.Reliable, 20)
		w.Run(w.Now + 10*time.Millisecond)
	}
	require.EqualValues(t, budget/2, w.of(0, 2).grant)
	require.EqualValues(t, budget/2, w.of(1, 2).grant)
	w.Run(w.Now + time.Second)
	w.end()
}

// Credit that did not arrive is told again, soon.
func TestCreditAgain(t *testing.T) {
	w := greeted(t, simple())
	took := w.nodes[0].receives
	w.nodes[0].receives = 0
	l := w.send(w.nodes[0], 1, engine.Reliable, 2000)
	w.Run(w.Now + 5*time.Millisecond)
	require.Zero(t, l.status)
	w.nodes[0].receives = took
	w.Run(w.Now + 50*time.Millisecond)
	require.Equal(t, engine.Delivered, l.status)
	w.end()
}
