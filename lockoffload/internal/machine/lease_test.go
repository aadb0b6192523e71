package machine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaseSim is a client that counts heartbeats up, on a wire and beside a target that are
// late by any time, and with clocks that run apart by a third. Times are of the target's
// clock.
type leaseSim struct {
	rng    *rand.Rand
	length time.Duration
	slow   float64 // how much longer a second of the client's clock is
	beats  []beat
}

// beat is a heartbeat: when it was posted and when it comes in.
type beat struct{ posted, comes time.Duration }

func newLeaseSim(seed uint64) *leaseSim {
	s := &leaseSim{rng: rand.New(rand.NewPCG(seed, 3)), length: time.Second}
	s.slow = 0.7 + 0.79*s.rng.Float64()
	return s
}

// late is how late something is: seldom, but then by up to two leases.
func (s *leaseSim) late(seldom int) time.Duration {
	if s.rng.IntN(seldom) == 0 {
		return s.rand(2 * s.length)
	}
	return s.rand(s.length / 1000)
}

func (s *leaseSim) rand(below time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(below)))
}

func (s *leaseSim) clientTime(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.slow)
}

// run posts heartbeats until the client dies. They come in in their order.
func (s *leaseSim) run(dies time.Duration) {
	var at, last time.Duration
	for at = s.late(10); at < dies; at += s.clientTime(s.length/3) + s.late(20) {
		last = max(last, at+s.late(10))
		s.beats = append(s.beats, beat{at, last})
	}
}

// word is what the heartbeats have made of it, those that came in by a time.
func (s *leaseSim) word(by time.Duration) (word uint64) {
	for i, b := range s.beats {
		if b.comes <= by {
			word = uint64(i) + 1
		}
	}
	return word
}

// until is to when the client has its lease, if what came in by a time was acknowledged.
func (s *leaseSim) until(by time.Duration) (until time.Duration) {
	for _, b := range s.beats {
		if b.comes <= by {
			until = b.posted + s.clientTime(s.length)
		}
	}
	return until
}

// Whatever is late, nothing is taken from a client before its lease has run out by its own
// clock, and it is taken in the end.
func TestLease(t *testing.T) {
	start := time.Unix(1000, 0)
	late := 0
	for seed := range uint64(3000) {
		s := newLeaseSim(seed)
		s.run(s.rand(6 * s.length))
		l := NewLease(s.length, 3*s.length, start)
		at := time.Duration(0)
		for look := func() LeaseState {
			word := s.word(at)
			at += s.late(10)
			return l.Look(word, start.Add(at))
		}; look() == LeaseRuns; at += s.length/8 + s.late(20) {
			require.Less(t, at, time.Minute, "seed %d", seed)
		}
		fenced := at + s.late(3)
		until := l.Fenced(s.word(fenced), start.Add(fenced+s.late(10))).Sub(start)
		require.LessOrEqual(t, s.until(fenced), until, "seed %d: lease of %v, the client's clock is slower by %.2f", seed, s.length, s.slow)
		require.Less(t, until, fenced+4*s.length, "seed %d", seed)
		if until > fenced+s.length {
			late++
		}
	}
	require.Greater(t, late, 20, "clients whose heartbeat came in between the look and the fence")
}

// When nothing is late a lease is over one and a half leases after the last heartbeat was
// seen.
func TestLeaseIsOver(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLease(time.Second, time.Minute, now)
	look := func(word uint64, after time.Duration) LeaseState { return l.Look(word, now.Add(after)) }
	require.Equal(t, LeaseRuns, look(0, time.Minute), "before the first heartbeat")
	require.Equal(t, LeaseRuns, look(7, 100*time.Second))
	require.Equal(t, LeaseRuns, look(8, 101*time.Second))
	require.Equal(t, LeaseRuns, look(8, 101*time.Second+3*time.Second/2))
	require.Equal(t, LeaseOver, look(8, 101*time.Second+3*time.Second/2+1))
	end := now.Add(103 * time.Second)
	fenced := func(word uint64) time.Time { l := l; return l.Fenced(word, end) }
	require.False(t, fenced(8).After(end))
	require.Equal(t, end, fenced(Goodbye), "and a client that has left needs no lease")
	require.Equal(t, end.Add(3*time.Second/2), fenced(9))
	require.Equal(t, LeaseRuns, look(9, 102*time.Second))
	require.Equal(t, now.Add(102*time.Second+3*time.Second/2), fenced(9), "the target ends a client that lives")
	require.Equal(t, LeaseLeft, look(Goodbye, 102*time.Second))

	l = NewLease(time.Second, time.Minute, now)
	require.Equal(t, end, fenced(0), "a client that has not begun")
	require.Equal(t, LeaseOver, look(0, time.Minute+1), "a client that never comes")
}

// A client's lease is over before the target's, however late it hears that its heartbeats
// have come in.
func TestKeptLeaseEndsFirst(t *testing.T) {
	began := time.Unix(0, 0)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	kept := NewKeptLease(10*time.Second, at(0))
	require.Equal(t, at(10), kept.Until(), "before anything is known")
	kept.Acknowledged() // at 2
	require.Equal(t, at(10), kept.Until())
	kept.Posted(at(3))
	require.Equal(t, at(10), kept.Until(), "on its way it may be lost")
	kept.Acknowledged() // at 9
	require.Equal(t, at(13), kept.Until())
}
