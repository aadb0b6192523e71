//go:build simhca && linux && cgo

package pacer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// Goroutines post to the same queue pairs, poll and wait for the same completion queue,
// call and give up, while queue pairs fail and are recovered and limits change: each
// signaled request is told once, and all credit comes back.
func TestSimulatedGoroutines(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	seed := testseed.New(t)
	r := newRig(t, pacer.Config{MTU: 1024, Slice: 4096, Threshold: 20000})
	cq := r.cq()
	const links, posters = 2, 2
	var qs, peers = make([]*pacer.QP, links), make([]*verbs.QP, links)
	for i := range qs {
		qs[i], peers[i] = r.paced(cq, verbs.QPConfig{MaxSendWR: 32}, pacer.FlowConfig{Reissue: i == 0})
	}
	stop := make(chan struct{})
	over := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var posted, told, succeeded, called atomic.Int64
	var ids sync.Map // of what is signaled and not told
	var working, polling sync.WaitGroup
	for i := range links * posters {
		working.Go(func() {
			rng, q := rand.New(rand.NewPCG(seed, uint64(i))), qs[i%links]
			b, err := q.NewBatch(4)
			if !assert.NoError(t, err) {
				return
			}
			for n := uint64(0); !over(); {
				for range 1 + rng.IntN(4) {
					n++
					id := uint64(i)<<32 | n
					ids.Store(id, true)
					length := rng.IntN(20000)
					if rng.IntN(4) == 0 {
						b.Add(verbs.WR{ID: id, Flags: verbs.Signaled, Op: verbs.WRWrite, Remote: r.b.mr.Region().At(500000), Local: []verbs.SGE{r.a.mr.SGE(0, length)}})
					} else {
						b.Add(verbs.WR{ID: id, Flags: verbs.Signaled, Op: verbs.WRRead, Remote: r.b.mr.Region().At(0), Local: []verbs.SGE{r.a.mr.SGE(100000*i, length)}})
					}
				}
				want := b.Len()
				got, err := b.PostContext(ctx)
				posted.Add(int64(got))
				for k := got; k < want; k++ {
					ids.Delete(uint64(i)<<32 | n - uint64(want-1-k))
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	for i := range links {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
			for !over() {
				short, done := context.WithTimeout(ctx, time.Duration(rng.IntN(2000))*time.Microsecond)
				if qs[i].Read(short, r.b.mr.Region().At(0), r.a.mr.SGE(600000+100000*i, rng.IntN(40000))) == nil {
					called.Add(1)
				}
				done()
			}
		})
	}
	ended := make(chan struct{})
	for i := range 3 {
		polling.Go(func() {
			var wcs [8]verbs.WC
			for {
				var n int
				var err error
				if i == 0 {
					n, err = qs[0].Poll(wcs[:])
				} else {
					short, done := context.WithTimeout(context.Background(), time.Millisecond)
					n, err = qs[1].Wait(short, wcs[:])
					done()
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					assert.NoError(t, err)
					return
				}
				for k := range wcs[:n] {
					_, found := ids.LoadAndDelete(wcs[k].ID())
					assert.True(t, found, "%#x is nobody's, or was told before", wcs[k].ID())
					told.Add(1)
					if wcs[k].Status() == verbs.WCSuccess {
						succeeded.Add(1)
					}
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 200))
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		i := rng.IntN(links)
		switch rng.IntN(10) {
		case 0:
			require.NoError(t, simhca.Fail(r.a.dev.Name(), qs[i].QP().Num(), rng.IntN(20), uint32(verbs.WCRetryExceeded)))
		case 1, 2, 3, 4:
			r.reconnect(qs[i], peers[i])
		case 5, 6:
			require.NoError(t, r.p.Reconfigure(pacer.Config{MTU: 1024, Slice: 1024 << rng.IntN(4), Threshold: int64(1 + rng.IntN(60000)), Policy: pacer.Policy(rng.IntN(3)), Units: 1 + rng.IntN(4)}))
		default:
			r.p.Pause(rng.IntN(3) == 0)
		}
	}
	r.p.Pause(false)
	close(stop)
	cancel()
	// Failures that were asked for may be still to come.
	require.Eventually(t, func() bool {
		for i := range qs {
			r.reconnect(qs[i], peers[i])
		}
		time.Sleep(10 * time.Millisecond)
		return told.Load() == posted.Load() && r.p.Stats().Alive == 0
	}, stuck, time.Millisecond)
	working.Wait()
	close(ended)
	polling.Wait()
	require.Equal(t, posted.Load(), told.Load())
	ids.Range(func(id, _ any) bool {
		t.Errorf("%#x was not told", id)
		return true
	})
	require.Positive(t, succeeded.Load())
	t.Logf("%d requests, %d succeeded, and %d calls", posted.Load(), succeeded.Load(), called.Load())
	r.idle()
}

// If a READ's context ends while the device has it, the call ends, and has its result later.
func TestSimulatedReadInFlight(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	r := newRig(t, pacer.Config{MTU: 1024, Slice: 4096, Threshold: 20000})
	q, _ := r.paced(r.cq(), verbs.QPConfig{MaxSendWR: 32}, pacer.FlowConfig{})
	var left *verbs.InFlightError
	for try := 0; left == nil && try < 10; try++ { // this host may take as long as the device
		require.NoError(t, simhca.Hold(r.a.dev.Name(), q.QP().Num(), time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := q.Read(ctx, r.b.mr.Region().At(0), r.a.mr.SGE(0, 1024))
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		errors.As(err, &left)
	}
	require.NotNil(t, left)
	<-left.Done()
	require.NoError(t, left.Err(), "it was executed")
	require.NoError(t, q.Read(t.Context(), r.b.mr.Region().At(0), r.a.mr.SGE(0, 64)))
}
