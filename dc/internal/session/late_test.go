package session

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestLateAnswerIsTakenUp: a target that was left without an answer gets its session
// when that comes late, though another one of its host was tried meanwhile: neither was
// sent a packet that could be late.
func TestLateAnswerIsTakenUp(t *testing.T) {
	b := newBench(t, 1, nil)
	slow, other := b.peer(1), b.peer(2)
	slow.at.GID = other.at.GID
	b.Enqueue(slow, 1, b.now)
	attempt := slow.ctx.Session.Attempt
	b.Enqueue(other, 1, b.now)
	for slow.ctx != nil {
		b.tick()
	}
	require.NotNil(t, other.ctx)
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: attempt, Peer: slow.Number, Session: 33, QPN: 5, MTU: 3, Wait: 60000, From: slow.at}, b.now)
	for slow.ctx == nil {
		b.tick()
	}
	require.EqualValues(t, 33, slow.ctx.Session.ID)
	require.EqualValues(t, 1, b.Stats.Resumes)
	// Once it is connected to, the other one has to wait for a second, or for a
	// session of its own.
	b.Joined(slow.ctx, nil, b.now)
	require.False(t, b.Contexts[0].departures.recent(other, b.now))
	b.Withdraw(slow, 1, false)
	b.leave(&b.Contexts[0], b.now)
	require.True(t, b.Contexts[0].departures.recent(other, b.now))
}

// TestTimeoutFollowsAnswersToCopies: what answers a connect packet that was sent again
// measures nothing, but the next one is given as long, until one is answered at once.
func TestTimeoutFollowsAnswersToCopies(t *testing.T) {
	const slow = 120 * time.Millisecond
	b := newBench(t, 1, func(l *Limits) { l.ConnectTimeout = 20 * time.Second })
	connect := func(n uint32, delay time.Duration) {
		p := b.peer(n)
		b.Enqueue(p, 1, b.now)
		end := b.now + delay
		for b.Next() < end {
			b.tick()
		}
		b.now = end
		b.answer(p, uint64(n))
		b.Joined(p.ctx, nil, b.now)
		b.Withdraw(p, 1, false)
		b.taken()
		require.True(t, b.Dismiss(p, b.now))
		b.ResetDone(&b.Contexts[0], nil, b.now)
		b.disconnects = nil
		b.taken()
	}
	require.Equal(t, b.Retransmit, b.timeout())
	connect(1, slow)
	require.NotZero(t, b.Stats.Retransmits)
	require.Equal(t, slow, b.timeout())
	require.Zero(t, b.rtt, "it may be the answer to any copy")
	sent := b.Stats.Retransmits
	connect(2, slow-time.Millisecond)
	require.Equal(t, sent, b.Stats.Retransmits, "it has time to answer now")
	require.Equal(t, slow-time.Millisecond, b.rtt)
	b.rtt, b.rttVar = 0, 0
	b.measure(time.Millisecond)
	require.Equal(t, b.Retransmit, b.timeout())
	connect(3, time.Second)
	require.Equal(t, 16*b.Retransmit, b.timeout(), "one that takes so long does not count for more")
	b.ConnectTimeout = time.Second
	b.measure(time.Millisecond)
	connect(4, 900*time.Millisecond)
	require.Equal(t, b.ConnectTimeout/32, b.timeout(), "it leaves time for others")

	// What comes as soon after the last copy as answers do is the answer to that.
	b.measure(time.Millisecond)
	p := b.peer(5)
	b.Enqueue(p, 1, b.now)
	b.tick()
	b.now += time.Millisecond
	b.answer(p, 5)
	require.Equal(t, b.Retransmit, b.timeout())

	// One that takes long counts also if it gave way when it had been sent twice.
	b = newBench(t, 1, func(l *Limits) { l.ConnectTimeout = 20 * time.Second })
	p = b.peer(1)
	b.Enqueue(p, 1, b.now)
	attempt := p.ctx.Session.Attempt
	b.Enqueue(b.peer(2), 1, b.now)
	for p.ctx != nil {
		b.tick()
	}
	b.now += slow
	b.Received(&wire.Message{Kind: wire.Attached, Sender: 1, Attempt: attempt, Peer: p.Number, Session: 33, QPN: 5, MTU: 3, Wait: 60000, From: p.at}, b.now)
	require.Equal(t, b.now, b.timeout())
	require.Zero(t, b.rtt)
}

// TestCopiesEnough: however long answers have taken, a target is sent several packets
// before it is given up, since some of them may be lost.
func TestCopiesEnough(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		b := newBench(t, 1, nil)
		b.measure(rtt) // the timeout is three times as long
		b.replied(time.Hour, time.Hour, false)
		p := b.peer(1)
		b.Enqueue(p, 1, b.now)
		copies := 0
		for p.ctx != nil {
			for _, a := range b.taken() {
				if a.Kind == ActSend && a.Message.Kind == wire.Connect {
					copies++
				}
			}
			b.now = b.Next()
			b.Tick(b.now)
		}
		require.Less(t, b.now, b.ConnectTimeout+time.Millisecond)
		require.GreaterOrEqual(t, copies, 6, "round trips of %v", rtt)
	}
}

// TestSlowNetwork: where answers take a multiple of the first timeout, connects are
// answered rather than given up. There is one context for six targets of two hosts, which
// all have requests. (A random program like this one gave up 1,635 connects for 151
// sessions, and let one request wait for more than 12 s, when only those answers counted
// that came before the timeout, and a host had been left to which nothing was sent.)
func TestSlowNetwork(t *testing.T) {
	for _, keep := range []bool{true, false} {
		w := &world{rng: rand.New(rand.NewPCG(1, 1)), sessions: map[uint64]bool{}, lease: time.Minute, spread: 20 * time.Millisecond}
		i := w.initiator(1, 1)
		i.core.Keep = keep
		for n := range byte(6) {
			at := wire.ControlAddress{QPN: w.qpn(), GID: wire.GID{15: n % 2}}
			w.target(at, at, 1)
			i.resolve(PeerAddress{At: at})
		}
		var jobs []*job
		for range 10 {
			jobs = append(jobs, w.everywhere()...)
		}
		w.Run(6 * time.Second)
		require.NoError(t, w.Err)
		for _, j := range jobs {
			require.Equal(t, 1, j.ended)
			require.NoError(t, j.err)
		}
		s := i.core.Stats
		require.Less(t, s.GaveWay, s.Attaches/2, "%+v", s)
	}
}

// TestAnswerToProbe: a target that gave way and answers a probe waits for a context like
// others, and no longer for answers.
func TestAnswerToProbe(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.Enqueue(other, 1, b.now)
	for p.ctx != nil {
		b.tick()
	}
	require.Equal(t, probed, p.rest)
	b.alive(p)
	require.Equal(t, inLine, p.rest)
	require.False(t, p.suspect)
	require.Zero(t, p.firstTry)
	b.Withdraw(other, 1, false)
	for p.ctx == nil && b.now < 10*time.Second {
		b.tick()
	}
	require.Equal(t, connecting, p.ctx.state)
}
