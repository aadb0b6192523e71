package verbs

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/chanmutex"
	"github.com/goverbs/goverbs/internal/testseed"
)

// bareRouter serves requesters without queue pairs.
func bareRouter(requesters, slots int) *router {
	rt := &router{cq: &CQ{}, pollLock: chanmutex.New()}
	table := make([]routed, requesters)
	for i := range table {
		r := &Requester{router: rt, index: uint64(i), slots: make([]slot, slots), qp: &QP{typ: RC}}
		r.qp.life.Label = "qp"
		r.capacity = int32(slots)
		r.credits.Store(r.capacity)
		for k := range r.slots {
			s := &r.slots[k]
			s.place, s.gen, s.token = uint32(k), rand.Uint32(), make(chan struct{}, 1)
		}
		table[i] = r
	}
	rt.table.Store(&table)
	return rt
}

func requestersOf(rt *router) []*Requester {
	var out []*Requester
	for _, r := range *rt.table.Load() {
		q, _ := r.(*Requester)
		out = append(out, q)
	}
	return out
}

// fly is what post does with a slot.
func (r *Requester) fly(i int, size int32) (id uint64) {
	s := &r.slots[i]
	s.gen++
	s.size, s.what, s.err = size, opRead, nil
	s.flying.Store(true)
	r.credits.Add(-size)
	return r.index<<48 | uint64(i)<<24 | uint64(s.gen&genMask)<<1 | 1
}

func completion(id uint64, status WCStatus) WC {
	var w WC
	w.wc.ID, w.wc.Status = id, uint32(status)
	return w
}

// Random completions: of requests under way, in any order; without an owner; and of lists
// that are over. Each slot ends once, with its own status, and nothing else moves.
func TestRouterDelivers(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		const requesters, slots = 3, 5
		rt := bareRouter(requesters, slots)
		table := requestersOf(rt)
		gone := rng.IntN(requesters + 1)
		if gone < requesters {
			table[gone], (*rt.table.Load())[gone] = nil, nil
		}
		flying := map[uint64]*slot{}
		var over []uint64
		strays := uint64(0)
		for range 200 {
			r := table[rng.IntN(requesters)]
			switch i := rng.IntN(slots); {
			case rng.IntN(3) == 0 && r != nil && !r.slots[i].flying.Load():
				flying[r.fly(i, 1)] = &r.slots[i]
			case rng.IntN(3) == 0:
				id := rng.Uint64()
				switch {
				case rng.IntN(2) == 0 && len(over) > 0:
					id = over[rng.IntN(len(over))]
				case rng.IntN(2) == 0:
					id = uint64(gone)<<48 | id&(1<<48-1)
				}
				if _, ok := flying[id|1]; !ok {
					rt.deliver([]WC{completion(id, WCSuccess)})
					strays++
				}
			default:
				for id, s := range flying {
					status := WCSuccess
					if rng.IntN(4) == 0 {
						status = WCRemoteAccess
					}
					if rng.IntN(2) == 0 { // an earlier request of the list
						rt.deliver([]WC{completion(id&^1, WCSuccess)})
						require.True(t, s.flying.Load())
					}
					rt.deliver([]WC{completion(id, status)})
					require.False(t, s.flying.Load())
					if status == WCSuccess {
						require.NoError(t, s.err)
					} else {
						require.ErrorIs(t, s.err, status)
					}
					delete(flying, id)
					over = append(over, id)
					break
				}
			}
			for _, s := range flying {
				require.True(t, s.flying.Load())
			}
			require.Equal(t, strays, rt.stray.Load())
		}
		left := int32(0)
		for _, r := range table {
			if r != nil {
				require.Equal(t, r.credits.Load() < slots, r.busy())
				left += slots - r.credits.Load()
			}
		}
		require.EqualValues(t, len(flying), left)
	}
}

// The first failure of a list stays, and the flushed ones have its cause.
func TestRouterKeepsTheCause(t *testing.T) {
	rt := bareRouter(1, 3)
	r := requestersOf(rt)[0]
	first, second := r.fly(0, 3), r.fly(1, 1)
	rt.deliver([]WC{completion(first&^1, WCRemoteAccess), completion(first&^1, WCFlushed), completion(first, WCFlushed), completion(second, WCFlushed)})
	require.ErrorIs(t, r.slots[0].err, WCRemoteAccess)
	require.NotErrorIs(t, r.slots[0].err, WCFlushed)
	require.ErrorIs(t, r.slots[1].err, WCFlushed)
	require.ErrorIs(t, r.slots[1].err, WCRemoteAccess)
	require.ErrorIs(t, r.qp.Err(), WCRemoteAccess)
	require.EqualValues(t, 3, r.credits.Load())
}

// One completion of a batch of 64 to its owner, which is not parked.
func BenchmarkDispatch(b *testing.B) {
	const n = 64
	rt := bareRouter(4, n/4)
	table := requestersOf(rt)
	wcs := make([]WC, n)
	b.ReportAllocs()
	for b.Loop() {
		for i := range wcs {
			r, s := table[i%4], &table[i%4].slots[i/4]
			s.flying.Store(true)
			wcs[i].wc.ID = r.index<<48 | uint64(i/4)<<24 | uint64(s.gen&genMask)<<1 | 1
		}
		rt.deliver(wcs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/completion")
}

// A completion to an owner that is parked: from the call that wakes it to its run.
func BenchmarkDispatchToParked(b *testing.B) {
	rt := bareRouter(1, 1)
	rt.hold() // as long as another goroutine polls, waiters are parked
	var w Waiter
	begin, over := make(chan struct{}), make(chan time.Time)
	go func() {
		for range begin {
			w.listen(b.Context(), rt)
			over <- time.Now()
		}
	}()
	defer close(begin)
	var took time.Duration
	for b.Loop() {
		w.Reset()
		begin <- struct{}{}
		for w.count.Load() == 0 {
			runtime.Gosched()
		}
		woken := time.Now()
		w.Wake()
		took += (<-over).Sub(woken)
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/wake")
}
