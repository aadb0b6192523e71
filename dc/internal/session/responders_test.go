package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// of makes a message one of a session.
func of(c *Target, session uint64, m *wire.Message) *wire.Message {
	m.Session, m.Epoch = session, c.Epoch
	return m
}

// TestTargetCounts what it does, and who has a session.
func TestTargetCounts(t *testing.T) {
	c, io := newTestTarget(1)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	sender, ok := c.Owner(session)
	require.True(t, ok)
	require.EqualValues(t, 1, sender)
	c.Received(from(2, wire.Connect), 1)
	require.Equal(t, wire.Busy, io.sent[1].Kind)
	require.Len(t, c.waiters, 1)
	require.EqualValues(t, 10, io.sent[1].Wait, "milliseconds; 0 says that its turn has come")
	c.Received(from(1, wire.Attached), 2)
	c.Received(of(c, session, from(1, wire.Detach)), 3)
	_, ok = c.Owner(session)
	require.False(t, ok)
	require.Equal(t, TargetStats{Attaches: 1, Detaches: 1, Busy: 1, Recalls: 1, Malformed: 1}, c.Counted())
	c.Received(of(c, session, from(1, wire.Detach)), 4)
	require.Equal(t, wire.Detached, io.last(t).Kind, "a copy")
	require.EqualValues(t, 1, c.Counted().Detaches)
	require.Zero(t, io.repaired)
}

// TestDetachByAttempt: an initiator that has not heard of its session names the attempt. That
// ends no other session.
func TestDetachByAttempt(t *testing.T) {
	c, io := newTestTarget(1)
	connect := from(1, wire.Connect)
	connect.Attempt = 2
	c.Received(connect, 0)
	c.Received(from(1, wire.Detach), 1)
	require.Equal(t, wire.Detached, io.last(t).Kind)
	require.Equal(t, 1, c.Counted().Live)
	bye := from(1, wire.Detach)
	bye.Attempt = 2
	c.Received(bye, 2)
	require.Zero(t, c.Counted().Live)
	require.Equal(t, []bool{true}, io.released)
	require.EqualValues(t, 1, c.Stats.Detaches)
}

// TestKeptOfAnotherContext: the session that a connect packet names is over, whichever context
// of its initiator had it.
func TestKeptOfAnotherContext(t *testing.T) {
	c, io := newTestTarget(2)
	c.Received(from(1, wire.Connect), 0)
	again := from(1, wire.Connect)
	again.Context, again.Session, again.Epoch = 9, io.last(t).Session, c.Epoch
	c.Received(again, 1)
	require.Equal(t, wire.Attached, io.last(t).Kind)
	require.Equal(t, []bool{true}, io.released)
	require.Equal(t, 1, c.Counted().Live)
	require.EqualValues(t, 1, c.Stats.Detaches)
}

// TestPrepare: what was released is made ready at once if an initiator waits for it, and
// only then.
func TestPrepare(t *testing.T) {
	c, io := newTestTarget(2)
	prepared := 0
	io.ready = func() {
		prepared++
		c.Ready(0, nil, 2)
	}
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	c.Received(from(2, wire.Connect), 0)
	c.Received(of(c, session, from(1, wire.Detach)), 1)
	require.Zero(t, prepared)
	c.Received(from(3, wire.Connect), 2)
	require.Equal(t, 1, prepared)
	require.Equal(t, wire.Attached, io.last(t).Kind)
}

// TestRepairPauses double while a responder context cannot be made ready, to ten seconds, and
// begin anew when it was.
func TestRepairPauses(t *testing.T) {
	c, _ := newTestTarget(1)
	now := time.Duration(0)
	pause := func() time.Duration {
		c.Ready(0, errors.New("no queue pair"), now)
		pause := c.Next() - now
		c.Tick(c.Next() - 1)
		require.Equal(t, now+pause, c.Next())
		now = c.Next()
		c.Tick(now)
		require.Equal(t, Never, c.Next(), "until it is known what came of it")
		return pause
	}
	for k := range 11 {
		require.Equal(t, min(20*time.Millisecond<<k, 10240*time.Millisecond), pause())
	}
	c.free = nil
	c.Ready(0, nil, now)
	require.Equal(t, Never, c.Next())
	require.Equal(t, 20*time.Millisecond, pause())
}

// TestWaitersByAddress: two control queues of one initiator wait for themselves, until each had
// its turn or has not come for a while.
func TestWaitersByAddress(t *testing.T) {
	connect := func(sender uint64, qpn uint32) *wire.Message {
		m := from(sender, wire.Connect)
		m.From.QPN = qpn
		return m
	}
	const late = time.Millisecond
	for name, v := range map[string]struct {
		second *wire.Message
		after  time.Duration
		served bool
	}{
		"the one that waits":    {connect(2, 20), late, true},
		"another control queue": {connect(2, 21), late, false},
		"another initiator":     {connect(3, 20), late, false},
		"too early":             {connect(3, 20), 40*time.Millisecond - 1, false},
		"it has given up":       {connect(3, 20), 40 * time.Millisecond, true},
	} {
		c, io := newTestTarget(1)
		c.Received(from(1, wire.Connect), 0)
		session := io.last(t).Session
		c.Received(connect(2, 20), 0)
		c.Received(connect(2, 20), 0) // again
		c.Received(of(c, session, from(1, wire.Detach)), 0)
		c.Ready(0, nil, 0)
		c.Received(v.second, v.after)
		require.Equal(t, v.served, c.Counted().Live == 1, name)
		if !v.served {
			continue
		}
		require.Empty(t, c.waiters, name)
		c.Received(of(c, io.last(t).Session, from(v.second.Sender, wire.Detach)), v.after)
		c.Ready(0, nil, v.after)
		c.Received(connect(5, 50), v.after)
		require.Equal(t, 1, c.Counted().Live, "%s: no other one waits", name)
	}
}

// TestTargetAfterMove: an initiator that has not heard of its session, which ended with the move,
// gets another one for the same connect packet.
func TestTargetAfterMove(t *testing.T) {
	c, io := newTestTarget(2)
	c.Received(from(1, wire.Connect), 0)
	session := io.last(t).Session
	c.Moved(1)
	again := from(1, wire.Connect)
	again.Epoch = c.Epoch
	c.Received(again, 2)
	require.Equal(t, wire.Attached, io.last(t).Kind)
	require.NotEqual(t, session, io.last(t).Session)
}
