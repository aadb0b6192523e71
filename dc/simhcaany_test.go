//go:build simhca && linux && cgo

package dc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// TestSimulatedAnything: two initiators with fewer contexts than targets, and targets
// with fewer responder contexts than initiators, are used in all ways at once, and queue
// pairs break. Each call ends, each request that was posted ends once, and what is added
// at the targets fits what the adders were told.
func TestSimulatedAnything(t *testing.T) {
	a, b := dcHosts(t)
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for _, backend := range []dc.Backend{dc.Software, dc.Hardware} {
		a.backend, b.backend = backend, backend
		anything(t, a, b, r)
	}
}

// tally is what became of the additions to one word.
type tally struct{ done, unknown atomic.Uint64 }

func (c *tally) ended(err error) {
	switch {
	case err == nil:
		c.done.Add(1)
	case errors.Is(err, dc.ErrSession):
		c.unknown.Add(1)
	}
}

func anything(t *testing.T, a, b *host, r *rand.Rand) {
	const initiators, targets, callers, each = 2, 4, 5, 300
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	clear(b.mr.Bytes()[:4096])
	var all []*dc.Target
	for range targets {
		all = append(all, b.target(t, dc.TargetConfig{Responders: 1, Recall: 20 * time.Millisecond, Retry: 2 * time.Millisecond}))
	}
	counts := make([]tally, targets)
	var work, collectors sync.WaitGroup
	var made []*dc.Initiator
	for n := range initiators {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 4, Quota: 4, Hold: 5 * time.Millisecond, MaxPending: 16, Retransmit: 5 * time.Millisecond, AckTimeout: time.Millisecond})
		made = append(made, i)
		var peers []*dc.Peer
		for _, target := range all {
			peers = append(peers, resolve(t, i, target, 0))
		}
		add := func(caller, to int) dc.Request {
			return dc.Request{ID: uint64(caller), Op: dc.FetchAdd, Local: a.mr.SGE(8*(callers*n+caller), 8), Remote: b.mr.Region().At(uint64(64 * to)), Value: 1}
		}
		var posted, ended atomic.Int64
		var posters sync.WaitGroup
		for caller := range callers {
			r := rand.New(rand.NewPCG(r.Uint64(), 0))
			one := func() {
				to := r.IntN(targets)
				p, req := peers[to], add(caller, to)
				short, end := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
				defer end()
				switch r.IntN(8) {
				case 0:
					_ = i.Attach(short, p)
				case 1:
					_ = i.Detach(p)
				case 2:
					_ = i.Flush(short, p)
				case 3:
					_, _ = i.Cancel(p, uint64(r.IntN(callers)))
				case 4:
					counts[to].ended(over(i.Do(short, p, req)))
				case 5:
					counts[to].ended(i.Do(ctx, p, req))
				default:
					if r.IntN(2) == 0 {
						req.Timeout = time.Duration(1+r.IntN(2000)) * time.Microsecond
					}
					taken, _ := i.Post(p, []dc.Request{req, req, req}[:1+r.IntN(3)]...)
					posted.Add(int64(taken))
				}
			}
			work.Add(1)
			posters.Go(func() {
				defer work.Done()
				for range each {
					one()
				}
			})
		}
		index := map[*dc.Peer]int{}
		for to, p := range peers {
			index[p] = to
		}
		collectors.Go(func() {
			over := make(chan struct{})
			go func() {
				posters.Wait()
				close(over)
			}()
			cs := make([]dc.Completion, 8)
			for {
				select {
				case <-over:
					if ended.Load() == posted.Load() {
						return
					}
				default:
				}
				short, end := context.WithTimeout(ctx, 5*time.Millisecond)
				got, err := i.Wait(short, cs)
				end()
				if err != nil && short.Err() == nil || ctx.Err() != nil {
					t.Errorf("%d of %d requests have ended: %v", ended.Load(), posted.Load(), err)
					return
				}
				for _, c := range cs[:got] {
					counts[index[c.Peer]].ended(c.Err)
				}
				ended.Add(int64(got))
			}
		})
	}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(4000)) * time.Microsecond):
			}
			i := made[r.IntN(initiators)]
			qpn := uint32(0)
			if i.Hardware() {
				qpn = i.DCI(r.IntN(2))
			} else {
				qpn = i.ContextQP(r.IntN(2))
			}
			_ = simhca.Break("mlx5_0", qpn) // one that was just replaced is not there
		}
	})
	work.Wait()
	close(stop)
	faults.Wait()
	collectors.Wait()
	require.NoError(t, ctx.Err(), "somebody waits for nothing")
	for _, i := range made {
		t.Logf("%+v", i.Stats())
		require.NoError(t, i.Close())
	}
	for n := range counts {
		got, done, unknown := verbs.Uint64(b.mr.Bytes(), 64*n), counts[n].done.Load(), counts[n].unknown.Load()
		require.GreaterOrEqual(t, got, done, "target %d", n)
		require.LessOrEqual(t, got, done+unknown, "target %d", n)
	}
}
