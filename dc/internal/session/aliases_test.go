package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestAliases: one target under two addresses, say with its generation and without,
// is two peers for an initiator. The session that is kept for one of them outlives
// what the same context does for the other.
func TestAliases(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			w := &world{rng: rand.New(rand.NewPCG(1, 2)), sessions: map[uint64]bool{}, lease: time.Minute}
			at := wire.ControlAddress{QPN: w.qpn(), GID: wire.GID{15: 1}}
			target := w.target(at, at, 2)
			i := w.initiator(1, 8)
			i.core.Keep = keep
			elsewhere := wire.ControlAddress{QPN: w.qpn(), GID: wire.GID{15: 2}}
			w.target(elsewhere, elsewhere, 2)
			peers := []*Peer{i.resolve(PeerAddress{At: at}), i.resolve(PeerAddress{At: at, Generation: target.core.Epoch}), i.resolve(PeerAddress{At: elsewhere})}
			var jobs []*job
			for n := range 9 {
				j := &job{on: i, to: peers[n%3]}
				jobs = append(jobs, j)
				i.post(j.to, j)
				w.Run(w.Now + 2*timeWait)
			}
			require.NoError(t, w.Err)
			for n, j := range jobs {
				require.Equal(t, 1, j.ended, "request %d", n)
				require.NoError(t, j.err, "request %d", n)
			}
			require.Zero(t, i.core.Stats.Failures)
		})
	}
}
