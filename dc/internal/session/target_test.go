package session

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// fakeIO is the driver of a target by itself.
type fakeIO struct {
	qpn      uint32
	attach   error
	sent     []wire.Message
	released []bool // clean or not
	repaired int
	moved    bool
	looked   int
	ready    func()
}

func (f *fakeIO) Attach(int, uint64, *wire.Message) (uint32, error) { f.qpn++; return f.qpn, f.attach }
func (f *fakeIO) Release(_ int, _ uint64, clean bool)               { f.released = append(f.released, clean) }
func (f *fakeIO) Prepare() {
	if f.ready != nil {
		f.ready()
	}
}
func (f *fakeIO) Repair(int) { f.repaired++ }
func (f *fakeIO) Moved(int) bool {
	f.looked++
	moved := f.moved
	f.moved = false
	return moved
}
func (f *fakeIO) Send(_ wire.ControlAddress, m *wire.Message) { f.sent = append(f.sent, *m) }

func (f *fakeIO) last(t *testing.T) wire.Message {
	t.Helper()
	require.NotEmpty(t, f.sent)
	return f.sent[len(f.sent)-1]
}

const targetKey = 77

func newTestTarget(slots int) (*Target, *fakeIO) {
	io := &fakeIO{qpn: 100}
	id := uint64(0)
	return NewTarget(5, targetKey, slots, TargetLimits{Lease: 10 * time.Second, Retry: 10 * time.Millisecond, Recall: time.Second}, io, func() uint64 { id++; return id }), io
}

func from(sender uint64, kind wire.Kind) *wire.Message {
	return &wire.Message{Kind: kind, Sender: sender, Key: targetKey, Attempt: 1, Context: 2, Peer: 3, QPN: 4, PSN: 5, From: wire.ControlAddress{QPN: uint32(sender)}}
}

// TestUnauthenticatedPeersGetNoReply, whatever they say, and change nothing.
func TestUnauthenticatedPeersGetNoReply(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	io.sent = nil
	for k := wire.Connect; k <= wire.Alive; k++ {
		m := from(1, k)
		m.Key ^= 1 << 63
		m.Session, m.Epoch = session, c.Epoch
		c.Received(m, 0)
	}
	require.Empty(t, io.sent)
	require.Empty(t, io.released)
	require.EqualValues(t, wire.Alive, c.Stats.Refused)
	require.Equal(t, 1, c.Counted().Live)
}

// TestFind: a message of another epoch, sender, context or attempt is of no
// session.
func TestFind(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	right := from(1, wire.KeepAlive)
	right.Session, right.Epoch, right.Wait = io.last(t).Session, c.Epoch, 77
	c.Received(right, 0)
	require.Equal(t, wire.Alive, io.last(t).Kind)
	require.EqualValues(t, 77, io.last(t).Wait, "the time of the keep-alive")
	for name, change := range map[string]func(*wire.Message){
		"session": func(m *wire.Message) { m.Session++ },
		"epoch":   func(m *wire.Message) { m.Epoch++ },
		"sender":  func(m *wire.Message) { m.Sender++ },
		"context": func(m *wire.Message) { m.Context++ },
		"attempt": func(m *wire.Message) { m.Attempt++ },
	} {
		m := *right
		change(&m)
		c.Received(&m, 0)
		require.Equal(t, wire.Refused, io.last(t).Kind, name)
		require.Equal(t, wire.StaleSession, io.last(t).Reason, name)
		m.Kind = wire.Detach
		c.Received(&m, 0)
		require.Equal(t, 1, c.Counted().Live, name)
	}
	old := from(2, wire.Connect)
	old.Epoch = c.Epoch + 1
	c.Received(old, 0)
	require.Equal(t, wire.StaleTarget, io.last(t).Reason)
}

// TestSilentInitiator loses its session, and the queue pair number is not used
// again.
func TestSilentInitiator(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	require.Equal(t, 10*time.Second, c.Next())
	c.Tick(10 * time.Second)
	require.Equal(t, []bool{false}, io.released)
	require.EqualValues(t, 1, c.Stats.Expired)
}

// TestPacketsKeepSession: as long as something comes in each lease, and then for one
// lease more, which the next look lengthens by half of it at most. Targets that cannot
// see it do not say so, and do not look.
func TestPacketsKeepSession(t *testing.T) {
	c, io := newTestTarget(1)
	c.PacketsCount = true
	id := uint64(400)
	c.nextID = func() uint64 { id++; return id }
	c.Received(from(1, wire.Connect), 0)
	require.EqualValues(t, wire.PacketsCount, io.last(t).Key)
	now, last := time.Duration(0), 35*time.Second
	for _, came := range []time.Duration{9 * time.Second, 18 * time.Second, 26 * time.Second, last} {
		for c.Next() < came && io.looked < 20 {
			now = c.Next()
			c.Tick(now)
		}
		io.moved = true
	}
	require.Empty(t, io.released, "until %v", now)
	for len(io.released) == 0 && now < 2*last && io.looked < 20 {
		now = c.Next()
		c.Tick(now)
	}
	require.Equal(t, []bool{false}, io.released, "its number is not used again")
	require.GreaterOrEqual(t, now, last+c.Lease)
	require.LessOrEqual(t, now, last+c.Lease+c.Lease/2)
	require.Less(t, io.looked, 20)

	c, io = newTestTarget(1)
	io.moved = true
	c.Received(from(1, wire.Connect), 0)
	require.Zero(t, io.last(t).Key)
	c.Tick(c.Next())
	require.Equal(t, []bool{false}, io.released)
	require.Zero(t, io.looked)
}

// TestRecalledSessionEnds after a bound, though its initiator keeps it alive.
func TestRecalledSessionEnds(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	ended := time.Duration(0)
	for now := time.Millisecond; ended == 0 && now < 5*time.Second; now += 5 * time.Millisecond {
		keep := from(1, wire.KeepAlive)
		keep.Session, keep.Epoch = session, c.Epoch
		c.Received(keep, now)
		c.Received(from(2, wire.Connect), now)
		if c.Next() <= now {
			c.Tick(now)
		}
		if len(io.released) > 0 {
			ended = now
		}
	}
	require.Equal(t, []bool{false}, io.released)
	require.InDelta(t, time.Second, ended, float64(20*time.Millisecond))
	require.EqualValues(t, 1, c.Stats.Reclaimed)
	require.Greater(t, c.Stats.Recalls, uint64(50), "it was asked again and again")
	c.Ready(0, nil, ended)
	require.Equal(t, wire.Busy, io.last(t).Kind)
	require.EqualValues(t, 2, io.last(t).Sender, "who waits is called")
	c.Received(from(2, wire.Connect), ended)
	require.Equal(t, wire.Attached, io.last(t).Kind)
}

// TestRecalledForSeldomVisitors: a waiting initiator need not be there all the time. One
// that has contexts for other targets too comes again when it has one.
func TestRecalledForSeldomVisitors(t *testing.T) {
	keep := func(c *Target, session uint64, now time.Duration) {
		m := from(1, wire.KeepAlive)
		m.Session, m.Epoch = session, c.Epoch
		c.Received(m, now)
	}
	const step = 5 * time.Millisecond
	for _, pause := range []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second} {
		c, io := newTestTarget(1)
		require.Less(t, 4*c.Retry, pause, "it is waited for no longer than that")
		c.Received(from(1, wire.Connect), 0)
		session := io.last(t).Session
		now := step
		for ; len(io.released) == 0 && now < 10*time.Second; now += step {
			keep(c, session, now)
			if now%pause == 0 {
				c.Received(from(2, wire.Connect), now)
			}
			if c.Next() <= now {
				c.Tick(now)
				require.Greater(t, c.Next(), now)
			}
		}
		require.Equal(t, []bool{false}, io.released, "%v", pause)
		require.GreaterOrEqual(t, now, c.Recall, "%v", pause)
		require.LessOrEqual(t, now, c.Recall+2*pause+2*step, "%v", pause)
	}
	// When no initiator has waited for long, the time begins anew.
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	c.Received(from(2, wire.Connect), step)
	later := step + forgetRecall*c.Recall
	for now := 2 * step; now < later+c.Recall; now += step {
		keep(c, session, now)
		if now >= later {
			c.Received(from(2, wire.Connect), now)
		}
		if c.Next() <= now {
			c.Tick(now)
			require.Greater(t, c.Next(), now)
		}
		require.Empty(t, io.released, "%v", now)
	}
}

// TestOneBusyAnswerRecallsOneSession, the one that was not heard of for longest;
// none is lost once no initiator waits any more.
func TestOneBusyAnswerRecallsOneSession(t *testing.T) {
	c, io := newTestTarget(3)
	for n := range uint64(3) {
		c.Received(from(n+1, wire.Connect), time.Duration(n)*time.Millisecond)
	}
	keep := from(1, wire.KeepAlive)
	keep.Session, keep.Epoch = 1, c.Epoch
	c.Received(keep, 5*time.Millisecond)
	io.sent = nil
	c.Received(from(9, wire.Connect), 6*time.Millisecond)
	require.Len(t, io.sent, 2)
	require.Equal(t, wire.Busy, io.sent[0].Kind)
	require.Equal(t, wire.Recall, io.sent[1].Kind)
	require.EqualValues(t, 2, io.sent[1].Sender)
	c.Tick(2 * time.Second)
	require.Empty(t, io.released)
	require.Equal(t, 3, c.Counted().Live)
}

// TestWaitersInOrder: the initiator that got the first busy reply comes first.
func TestWaitersInOrder(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	c.Received(from(2, wire.Connect), 1)
	c.Received(from(3, wire.Connect), 2)
	bye := from(1, wire.Detach)
	bye.Session, bye.Epoch = session, c.Epoch
	c.Received(bye, 3)
	require.Equal(t, []bool{true}, io.released)
	c.Ready(0, nil, 3)
	require.EqualValues(t, 2, io.last(t).Sender)
	c.Received(from(4, wire.Connect), 4)
	require.Zero(t, c.Counted().Live)
	c.Received(from(3, wire.Connect), 4)
	require.Zero(t, c.Counted().Live)
	c.Received(from(2, wire.Connect), 4)
	require.Equal(t, wire.Attached, io.last(t).Kind)
}

// TestWaitersAreBounded: initiators beyond a number get busy replies, and come again by
// themselves.
func TestWaitersAreBounded(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	for n := range uint64(2 * maxWaiters) {
		c.Received(from(2+n, wire.Connect), 0)
		busy := slices.ContainsFunc(io.sent, func(m wire.Message) bool { return m.Kind == wire.Busy && m.Sender == 2+n })
		require.True(t, busy)
		io.sent = io.sent[:0]
	}
	require.Len(t, c.waiters, maxWaiters)
	c.Received(from(2, wire.Connect), time.Millisecond)
	require.Len(t, c.waiters, maxWaiters)
	require.Greater(t, c.waiters[0].until, c.waiters[1].until, "one that is known stays so")
}

// TestCopiesOfConnect get the same answer, and late ones none.
func TestCopiesOfConnect(t *testing.T) {
	c, io := newTestTarget(2)
	c.Received(from(1, wire.Connect), 0)
	first := io.last(t)
	c.Received(from(1, wire.Connect), 1)
	require.Equal(t, first, io.last(t))
	require.Equal(t, 1, c.Counted().Live)
	again := from(1, wire.Connect)
	again.Attempt, again.Session = 2, first.Session
	c.Received(again, 2)
	second := io.last(t)
	require.Equal(t, wire.Attached, second.Kind)
	require.NotEqual(t, first.Session, second.Session)
	n := len(io.sent)
	c.Received(from(1, wire.Connect), 3)
	require.Len(t, io.sent, n, "it was sent before")
	require.Equal(t, 1, c.Counted().Live)
}

// TestLateConnectOpensNothing: the session of its attempt is over.
func TestLateConnectOpensNothing(t *testing.T) {
	c, io := newTestTarget(2)
	connect := from(1, wire.Connect)
	c.Received(connect, 0)
	bye := from(1, wire.Detach)
	bye.Session, bye.Epoch = io.last(t).Session, c.Epoch
	c.Received(bye, 1)
	n := len(io.sent)
	c.Received(connect, 2)
	require.Len(t, io.sent, n)
	require.Zero(t, c.Counted().Live)
	// The same if the disconnect, by attempt alone, comes first.
	bye = from(2, wire.Detach)
	c.Received(bye, 3)
	require.Equal(t, wire.Detached, io.last(t).Kind)
	c.Received(from(2, wire.Connect), 4)
	require.Zero(t, c.Counted().Live)
}

// TestDamagedResponder is repaired, again and again.
func TestDamagedResponder(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	c.Tick(10 * time.Second)
	now := 10 * time.Second
	for range 4 {
		c.Ready(0, errors.New("no queue pair"), now)
		require.Greater(t, c.Next(), now)
		now = c.Next()
		c.Tick(now)
	}
	require.Equal(t, 4, io.repaired)
	c.Ready(0, nil, now)
	c.Received(from(2, wire.Connect), now)
	require.Equal(t, wire.Attached, io.last(t).Kind)
}

// TestFailedSetUp is told, to copies too, and opens nothing.
func TestFailedSetUp(t *testing.T) {
	c, io := newTestTarget(1)
	io.attach = errors.New("no way")
	c.Received(from(1, wire.Connect), 0)
	require.Equal(t, wire.BadSetup, io.last(t).Reason)
	io.attach = nil
	c.Received(from(1, wire.Connect), 1)
	require.Len(t, io.sent, 2)
	require.Equal(t, wire.BadSetup, io.last(t).Reason)
	require.Zero(t, c.Counted().Live)
}

// TestProbe gets a reply, and costs nothing.
func TestProbe(t *testing.T) {
	c, io := newTestTarget(1)
	m := from(1, wire.Probe)
	m.Session, m.Wait = 9, 77
	c.Received(m, 0)
	require.Equal(t, wire.Alive, io.last(t).Kind)
	require.EqualValues(t, 77, io.last(t).Wait)
	require.Zero(t, io.last(t).Session)
	require.Zero(t, c.Counted().Live)
}

// TestOneWaiter: a responder context that is free is for the initiator that waits, until
// that has given up.
func TestOneWaiter(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	c.Received(from(2, wire.Connect), 1)
	bye := from(1, wire.Detach)
	bye.Session, bye.Epoch = io.sent[0].Session, c.Epoch
	c.Received(bye, 2)
	c.Ready(0, nil, 2)
	c.Received(from(3, wire.Connect), 3)
	require.Zero(t, c.Counted().Live)
	c.Received(from(3, wire.Connect), time.Second)
	require.Equal(t, 1, c.Counted().Live)
}

// TestBadSlot: a responder context that cannot be set up does not stand in the way of
// the others, and is made anew.
func TestBadSlot(t *testing.T) {
	c, io := newTestTarget(2)
	io.attach = errors.New("no way")
	c.Received(from(1, wire.Connect), 0)
	require.Equal(t, wire.BadSetup, io.last(t).Reason)
	require.Equal(t, []bool{false}, io.released)
	io.attach = nil
	c.Received(from(2, wire.Connect), 1)
	require.Equal(t, wire.Attached, io.last(t).Kind)
	c.Received(from(3, wire.Connect), 2)
	require.Equal(t, wire.Recall, io.last(t).Kind, "none is left")
	c.Ready(0, nil, 3)
	c.Received(from(3, wire.Connect), 3)
	require.Equal(t, wire.Attached, io.last(t).Kind)
}

// TestSuperseded: an initiator context that comes again has left its session. What it
// kept left nothing under way; of anything else nothing is known. Sessions of other
// initiators stay.
func TestSuperseded(t *testing.T) {
	for _, named := range []bool{true, false} {
		c, io := newTestTarget(3)
		c.Received(from(2, wire.Connect), 0)
		others := io.last(t).Session
		c.Received(from(1, wire.Connect), 0)
		again := from(1, wire.Connect)
		again.Attempt = 2
		again.Session = others
		if named {
			again.Session = io.last(t).Session
		}
		c.Received(again, 1)
		require.Equal(t, []bool{named}, io.released)
		require.Equal(t, 2, c.Counted().Live)
	}
}

// TestHowSessionsEnd: the number of a responder context is used again only if its
// initiator says that nothing is under way.
func TestHowSessionsEnd(t *testing.T) {
	for reason, clean := range map[wire.Reason]bool{wire.NoReason: true, wire.Broken: false} {
		c, io := newTestTarget(1)
		c.Received(from(1, wire.Connect), 0)
		bye := from(1, wire.Detach)
		bye.Session, bye.Epoch, bye.Reason = io.last(t).Session, c.Epoch, reason
		c.Received(bye, 1)
		require.Equal(t, []bool{clean}, io.released)
	}
}

// TestRecallsAreSpaced, however often others ask.
func TestRecallsAreSpaced(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	io.sent = nil
	for n := range uint64(100) {
		c.Received(from(2+n, wire.Connect), time.Millisecond)
	}
	require.EqualValues(t, 1, c.Stats.Recalls)
	c.Received(from(2, wire.Connect), time.Millisecond+c.Retry)
	require.EqualValues(t, 2, c.Stats.Recalls)
}
