package session

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestLateAnswer: the session that a target gives when it has left its context is closed,
// and the reply shows that the target is there.
func TestLateAnswer(t *testing.T) {
	b := newBench(t, 1, nil)
	slow, other := b.peer(1), b.peer(2)
	b.Enqueue(slow, 1, b.now)
	attempt := slow.ctx.Session.Attempt
	b.Enqueue(other, 1, b.now)
	for slow.ctx != nil {
		b.tick()
	}
	require.Equal(t, probed, slow.rest)
	require.Equal(t, []any{wire.Detach}, b.said(slow, wire.Message{Kind: wire.Attached, Attempt: attempt, Session: 33, QPN: 5, MTU: 3, Wait: 60000}))
	require.Equal(t, inLine, slow.rest)
}

// TestNothingSentNothingLate: a target that did not answer its connect packets was sent
// nothing else, so the session of another one on its host is taken up at once.
func TestNothingSentNothingLate(t *testing.T) {
	b := newBench(t, 1, nil)
	p, silent := b.peer(1), b.peer(2)
	silent.at.GID = p.at.GID
	x := b.attach(p, 3)
	b.Enqueue(silent, 1, b.now)
	b.ResetDone(x, nil, b.now)
	b.Enqueue(p, 1, b.now)
	for silent.ctx != nil {
		b.tick()
	}
	require.Same(t, p, x.peer)
	require.Equal(t, joining, x.state)
	require.EqualValues(t, 1, b.Stats.Resumes)
}

// TestTimeout follows the replies to connect packets that were sent once, and to probes,
// which hold the time at which they were sent. The reply to a connect packet that was sent
// again may be to any copy.
func TestTimeout(t *testing.T) {
	b := newBench(t, 1, nil)
	connect := func(n uint32, delay time.Duration) {
		p := b.peer(n)
		b.Enqueue(p, 1, b.now)
		end := b.now + delay
		for b.Next() < end {
			b.tick()
		}
		b.now = end
		b.answer(p, uint64(n))
		b.Joined(p.ctx, ErrRefused, b.now)
		b.ResetDone(&b.Contexts[0], nil, b.now)
		b.disconnects = nil
		b.taken()
	}
	require.Equal(t, b.Retransmit, b.timeout())
	connect(1, 8*time.Millisecond)
	require.Equal(t, 8*time.Millisecond, b.rtt.SRTT)
	require.Equal(t, 24*time.Millisecond, b.timeout())
	connect(2, 60*time.Millisecond)
	require.NotZero(t, b.Stats.Retransmits)
	require.Equal(t, 24*time.Millisecond, b.timeout())
	for n := range uint32(20) {
		p := b.newPeer(10 + n)
		b.Enqueue(p, 0, b.now)
		sent := b.now
		b.now += 40 * time.Millisecond
		m := wire.Message{Kind: wire.Alive, Wait: uint32(sent / time.Millisecond)}
		b.said(p, m)
		before := b.rtt.SRTT
		b.now += 300 * time.Millisecond
		b.said(p, m)
		require.Equal(t, before, b.rtt.SRTT, "a copy")
		b.Withdraw(p, 0, true)
		b.fail(p, ErrRefused, b.now)
	}
	require.InDelta(t, 40*time.Millisecond, b.rtt.SRTT, float64(3*time.Millisecond))
	for range 20 {
		b.rtt.Sample(time.Second)
	}
	require.Equal(t, b.ConnectTimeout/8, b.timeout(), "several are sent before a target is given up")
}

// TestCopiesEnough: however long replies have taken, a target is sent several packets
// before it is given up, since some of them may be lost.
func TestCopiesEnough(t *testing.T) {
	for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond} {
		b := newBench(t, 1, nil)
		b.rtt.Sample(rtt) // the timeout is three times as long
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

// TestSlowNetwork: where replies take a multiple of the first timeout, connects get
// replies rather than being given up. There is one context for six targets of two hosts,
// which all have requests.
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

// TestAnswerToProbe: a target that gave way and replies to a probe waits for a context like
// others, and no longer for replies.
func TestAnswerToProbe(t *testing.T) {
	b := newBench(t, 1, nil)
	p, other := b.peer(1), b.peer(2)
	b.Enqueue(p, 1, b.now)
	b.Enqueue(other, 1, b.now)
	for p.ctx != nil {
		b.tick()
	}
	require.Equal(t, probed, p.rest)
	b.said(p, wire.Message{Kind: wire.Alive})
	require.Equal(t, inLine, p.rest)
	require.True(t, p.alive)
	require.Zero(t, p.firstTry)
	b.Withdraw(other, 1, false)
	for p.ctx == nil && b.now < 10*time.Second {
		b.tick()
	}
	require.Equal(t, connecting, p.ctx.state)
}
