package session

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestDamagedWhileConnecting: a connect packet names the session that it replaces. The
// target may have given that one's responder context away when the connect comes to
// nothing because the queue pair cannot be reset, so the session is not taken up again. (Seed
// 11104 of the simulation found requests of such a session at another one.)
func TestDamagedWhileConnecting(t *testing.T) {
	b := newBench(t, 2, nil)
	p := b.peer(1)
	p.kept = Session{ID: 9, Context: 1, Attempt: 1, QPN: 5, Lease: 60000, heard: b.now}
	p.pending = 1
	x := &b.Contexts[0]
	x.dirty = true
	b.connect(x, p, b.now)
	require.EqualValues(t, 9, b.taken()[0].Message.Session)
	b.ResetDone(x, errors.New("no"), b.now)
	require.Zero(t, p.kept)
	require.Zero(t, b.Counted().Kept)
	var ended []uint64
	for _, a := range b.taken() {
		if a.Kind == ActSend && a.Message.Kind == wire.Detach {
			ended = append(ended, a.Message.Session)
		}
	}
	require.Equal(t, []uint64{0, 9}, ended)
}

// TestDamagedBeforeAttach: a target of which a session alone is wanted waits for another context.
func TestDamagedBeforeAttach(t *testing.T) {
	b := newBench(t, 1, nil)
	x := b.attach(b.peer(1), 3)
	q := b.peer(2)
	b.Enqueue(q, 0, b.now)
	require.True(t, x.resetting)
	b.ResetDone(x, errors.New("no"), b.now)
	require.True(t, q.Waiting())
	b.until(ActReset)
	b.ResetDone(x, nil, b.now)
	require.Same(t, q, x.peer)
}

// TestDamagedWithLine: targets that wait for a context that cannot be made ready are served by
// another one that is empty.
func TestDamagedWithLine(t *testing.T) {
	b := newBench(t, 2, nil)
	p, q, r := b.peer(1), b.peer(2), b.peer(3)
	x, y := b.attach(p, 3), b.attach(q, 4)
	b.Posted(y, 1, 1)
	b.Enqueue(r, 1, b.now)
	require.True(t, x.resetting)
	b.Enqueue(p, 1, b.now)
	require.Same(t, &x.line, p.line)
	b.Completed(y, 1, false, b.now)
	b.Withdraw(r, 1, false)
	b.ResetDone(x, errors.New("no"), b.now)
	require.Same(t, y, p.ctx)
}
