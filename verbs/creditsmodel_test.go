//go:build linux && cgo

package verbs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/internal/testseed"
)

// TestCreditsModel: random programs against a list of what was posted. A post is
// taken if, and only if, there is room, and the provider's queue never overflows.
func TestCreditsModel(t *testing.T) {
	type posted struct {
		id             uint64
		stream         int
		signaled, done bool
	}
	seed := testseed.New(t)
	for name, cfg := range counted {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(len(name))))
			cfg.MaxSendWR, cfg.Streams = 1+r.IntN(12), 2*cfg.Streams
			q, b, cq, _ := connected(t, cfg, cfg.MaxSendWR)
			var ah *AH
			if cfg.Type.unconnected() {
				ah = driverAH(t, q.pd, 0xa1)
			}
			var queue []posted // of which the first has not completed
			id := uint64(0)
			var wcs [1]WC
			for range 3000 {
				used := len(queue)
				if cfg.Type == SRD {
					used = 0
					for _, p := range queue {
						if !p.done {
							used++
						}
					}
				}
				if n := 1 + r.IntN(b.Cap()); r.IntN(2) == 0 {
					var batch []posted
					for range n {
						id++
						p := posted{id: id, signaled: cfg.Type == SRD || r.IntN(3) == 0 || used+len(batch) == b.Cap()-1}
						if cfg.Streams > 0 {
							p.stream = 1 + r.IntN(cfg.Streams)
						}
						if ah != nil {
							b.SetTarget(Target{AH: ah, QPN: 0x77, Stream: p.stream})
						}
						flags := SendFlags(0)
						if p.signaled {
							flags = Signaled
						}
						b.Send(id, flags, wordSGE)
						batch = append(batch, p)
					}
					_, err := b.Post()
					require.Equal(t, used+n > cfg.MaxSendWR, err != nil, "%d used of %d, %d more: %v", used, cfg.MaxSendWR, n, err)
					if err == nil {
						queue = append(queue, batch...)
					} else {
						require.ErrorIs(t, err, ErrQueueFull)
					}
				} else {
					// One that completes, of those that can.
					var can []int
					first := map[int]bool{}
					for i, p := range queue {
						if !p.done && p.signaled && (cfg.Type == SRD || !first[p.stream]) {
							can, first[p.stream] = append(can, i), true
						}
					}
					if len(can) == 0 {
						if len(queue) > 0 && r.IntN(4) == 0 { // all unsignaled: RESET
							require.NoError(t, q.ToReset())
							require.NoError(t, q.Init())
							require.NoError(t, q.getReady())
							queue = nil
						}
						continue
					}
					i := can[r.IntN(len(can))]
					standin.Complete(standinQP, queue[i].id, uint32(WCSuccess))
					n, err := cq.Poll(wcs[:])
					require.NoError(t, err)
					require.Equal(t, 1, n)
					queue[i].done = true
					for j := range queue[:i] {
						if cfg.Type != SRD && queue[j].stream == queue[i].stream {
							queue[j].done = true
						}
					}
					for len(queue) > 0 && queue[0].done {
						queue = queue[1:]
					}
				}
				require.NotContains(t, standin.Recorded(), "OVERWRITES")
			}
		})
	}
}
