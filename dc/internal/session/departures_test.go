package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestKeptElsewhere: the session that a target kept is given back when it gives way, and
// forgotten when the target is found at another place.
func TestKeptElsewhere(t *testing.T) {
	b := newBench(t, 1, nil)
	p, q := b.peer(1), b.peer(2)
	b.attach(p, 3)
	b.moved(q, 4)
	require.EqualValues(t, 3, p.kept.ID)
	b.Found(p, wire.ControlAddress{QPN: 77}, nil, b.now)
	require.Zero(t, p.kept.ID)
	require.Empty(t, b.taken())

	b = newBench(t, 1, nil)
	p, q = b.peer(1), b.peer(2)
	b.attach(p, 3)
	x := b.moved(q, 4)
	b.now = p.kept.heard + p.kept.lease()/2 + time.Second // lapsed, and replaced
	x.Session.heard = b.now
	b.Enqueue(p, 1, b.now)
	b.Enqueue(q, 1, b.now)
	b.ResetDone(x, nil, b.now)
	b.taken()
	b.tick()
	as := b.tick()
	require.Nil(t, p.ctx)
	require.False(t, p.alive)
	var ended []uint64
	for _, a := range as {
		if a.Kind == ActSend && a.Message.Kind == wire.Detach {
			ended = append(ended, a.Message.Session)
		}
	}
	require.Equal(t, []uint64{3, 0}, ended, "and what it was asked for")
}

// moved brings a peer to a context that has to leave another one.
func (b *bench) moved(p *Peer, session uint64) *Context {
	b.t.Helper()
	b.Enqueue(p, 1, b.now)
	require.NotNil(b.t, p.ctx)
	b.ResetDone(p.ctx, nil, b.now)
	b.connected(p, session, 1, 0)
	b.taken()
	return p.ctx
}

// TestSeveralLeft: a session is not taken up while packets of another target on the
// host may be late, though this one was left last.
func TestSeveralLeft(t *testing.T) {
	var d departures
	host := wire.ControlAddress{GID: wire.GID{15: 1}}
	p, q := &Peer{at: host}, &Peer{at: host}
	d.add(p, 0, timeWait)
	require.False(t, d.recent(p, 1))
	d.add(q, 1, timeWait)
	require.True(t, d.recent(q, 2))
	require.True(t, d.recent(p, 2))
	d.add(q, 2, timeWait)
	require.True(t, d.recent(q, 3), "and the other one still")
	require.True(t, d.recent(q, timeWait+1))
	require.False(t, d.recent(q, timeWait+2))
	d.add(q, timeWait+2, timeWait)
	require.False(t, d.recent(q, timeWait+3), "the other one was left long ago")
	require.False(t, d.recent(p, 3*timeWait))
}

// TestDeparturesMakeRoom for others when they are old, and not before.
func TestDeparturesMakeRoom(t *testing.T) {
	var d departures
	other := func(n int) *Peer { return &Peer{at: wire.ControlAddress{GID: wire.GID{14: byte(n >> 8), 15: byte(n)}}} }
	for n := range 2000 {
		d.add(other(n), time.Duration(n)*time.Millisecond, 100*time.Millisecond)
		require.True(t, d.recent(other(max(n-99, 0)), time.Duration(n)*time.Millisecond), "host %d", n)
		require.LessOrEqual(t, len(d.hosts), 2*101)
	}
}
