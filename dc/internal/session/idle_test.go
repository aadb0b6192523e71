package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingToDo: a context that has been connected to a target which needs it no more,
// or not yet, serves one that waits.
func TestNothingToDo(t *testing.T) {
	for name, begin := range map[string]func(b *bench, p *Peer){
		"a session was asked for": func(b *bench, p *Peer) { b.Enqueue(p, 0, b.now) },
		"the request was taken back": func(b *bench, p *Peer) {
			b.Enqueue(p, 1, b.now)
			b.Withdraw(p, 1, false)
		},
	} {
		for _, late := range []bool{false, true} { // the other one comes when all is done
			b := newBench(t, 1, nil)
			p, other := b.peer(1), b.peer(2)
			begin(b, p)
			if !late {
				b.Enqueue(other, 1, b.now)
			}
			b.answer(p, 9)
			b.Joined(p.ctx, nil, b.now)
			if late {
				b.Enqueue(other, 1, b.now)
			}
			for range 10 { // until the queue pair can be connected again
				for _, a := range b.taken() {
					if a.Kind == ActReset {
						b.ResetDone(a.Context, nil, b.now)
					}
				}
			}
			require.NotNil(t, other.ctx, name)
			require.Nil(t, p.ctx)
		}
	}
}
