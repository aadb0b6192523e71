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
