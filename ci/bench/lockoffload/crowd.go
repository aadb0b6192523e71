package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/lockoffload"
)

const (
	crowdSlots = 64
	crowdMost  = 32
	crowdSkew  = 0.99 // of the zipf distribution of slots: a fifth of all choices is the first one
	crowdWarm  = 100 * time.Millisecond
	crowdTime  = time.Second
)

// crowdPauses are the pauses of direct clients after tries that failed: at first
// what a change takes, at most what lockoffload's clients pause. Changes in a
// second by 2, 8 and 32 clients, on the instruction clock (two passes each):
// without pauses 1145, 896, 355; 50 us to 5 ms 1199, 1008, 527; 200 us to 20 ms
// 1199, 1078, 523; these 1204, 1103, 693; 2 ms to 200 ms 1199, 1143, 733, with less
// fairness.
var crowdPauses = backoff{First: time.Millisecond, Most: 100 * time.Millisecond}

// crowdRig are the clients of one target, of each kind as many.
type crowdRig struct {
	*target
	clients []*lockoffload.Client
	helped  []*lockoffload.Client // with the agent
	direct  []*direct
	naive   []*naive
	data    []byte
}

func newCrowd() (*crowdRig, error) {
	t, err := newTarget(lockoffload.Layout{Slots: crowdSlots, Size: recordSize, Clients: 2 * crowdMost}, restful)
	if err != nil {
		return nil, err
	}
	c := &crowdRig{target: t, data: make([]byte, recordSize)}
	for i := range crowdMost {
		for _, list := range []*[]*lockoffload.Client{&c.clients, &c.helped} {
			one, err := t.newClient()
			if err != nil {
				return nil, err
			}
			*list = append(*list, one)
		}
		caller, err := t.newCaller()
		if err != nil {
			return nil, err
		}
		c.helped[i].UseAgent(caller)
		plain, err := t.newPlain(uint64(i + 1))
		if err != nil {
			return nil, err
		}
		c.direct, c.naive = append(c.direct, &direct{plain, crowdPauses}), append(c.naive, &naive{plain})
	}
	return c, nil
}

// crowdOp is one change by client i.
type crowdOp func(c *crowdRig, ctx context.Context, i, slot int) error

func (c *crowdRig) update(ctx context.Context, i, slot int) error {
	_, err := c.clients[i].Update(ctx, slot, func([]byte) ([]byte, error) { return c.data, nil })
	return err
}

func (c *crowdRig) do(ctx context.Context, i, slot int) error {
	return c.chain(ctx, c.helped[i], lockoffload.Chain{Slot: slot})
}

func (c *crowdRig) doFair(ctx context.Context, i, slot int) error {
	return c.chain(ctx, c.helped[i], lockoffload.Chain{Slot: slot, Fair: true})
}

func (c *crowdRig) chain(ctx context.Context, by *lockoffload.Client, ch lockoffload.Chain) error {
	ch.Accesses = []lockoffload.Access{
		{Kind: lockoffload.AccessRead, Data: make([]byte, recordSize)},
		{Kind: lockoffload.AccessWrite, Data: c.data},
	}
	_, err := by.Do(ctx, &ch)
	return err
}

func (c *crowdRig) handOff(ctx context.Context, i, slot int) error {
	h, _, err := c.helped[i].Lock(ctx, slot, lockoffload.LockOptions{Mode: lockoffload.Fair})
	if err != nil {
		return err
	}
	_, err = h.Write(ctx, 0, c.data)
	return errors.Join(err, h.Unlock(ctx))
}

func (c *crowdRig) change(ctx context.Context, i, slot int) error {
	return c.direct[i].change(ctx, slot)
}

func (c *crowdRig) spin(ctx context.Context, i, slot int) error {
	return c.naive[i].change(ctx, slot)
}

// on is the change of one slot, whichever is picked.
func (op crowdOp) on(slot int) crowdOp {
	return func(c *crowdRig, ctx context.Context, i, _ int) error { return op(c, ctx, i, slot) }
}

// by is a pass of n clients: a second, or two if they are many.
func (op crowdOp) by(n int) func(*crowdRig, context.Context) ([]float64, error) {
	if n == crowdMost {
		return op.lasting(n, 2*crowdTime)
	}
	return op.lasting(n, crowdTime)
}

func (op crowdOp) lasting(n int, length time.Duration) func(*crowdRig, context.Context) ([]float64, error) {
	return func(c *crowdRig, ctx context.Context) ([]float64, error) {
		o, err := c.run(ctx, n, length, op)
		if err != nil {
			return nil, err
		}
		return []float64{goodput: o.rate(), tail: tailOf(o.ns), hotTail: tailOf(o.hot), jain: o.jain()}, nil
	}
}

// crowdOutcome is what the clients of one pass got done in its time.
type crowdOutcome struct {
	each   []float64 // operations of each client
	ns     []int64   // what each operation took
	hot    []int64   // those on the first slot
	length time.Duration
}

func (o crowdOutcome) rate() float64 { return float64(len(o.ns)) / o.length.Seconds() }

// tailOf returns the 99th percentile over the median.
func tailOf(ns []int64) float64 {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return float64(ns[len(ns)*99/100]) / float64(ns[len(ns)/2])
}

// jain is Jain's index of fairness: 1 when all got the same, 1/n when one got
// everything.
func (o crowdOutcome) jain() float64 {
	var sum, squares float64
	for _, x := range o.each {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(o.each)) * squares)
}

// run has n clients change records for so long, after warming up. What began in that time
// counts when it ends in it.
func (c *crowdRig) run(ctx context.Context, n int, length time.Duration, op crowdOp) (crowdOutcome, error) {
	defer rig.DefaultProcs()()
	runtime.GC()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var stop atomic.Bool
	o := crowdOutcome{each: make([]float64, n), length: length}
	began := time.Now().Add(crowdWarm)
	for i := range n {
		wg.Go(func() {
			pick := rig.Zipf(crowdSlots, crowdSkew, uint64(100+i))
			var ns, hot []int64
			var err error
			for err == nil && !stop.Load() {
				slot, start := pick(), time.Now()
				if err = op(c, ctx, i, slot); err != nil {
					stop.Store(true)
					break
				}
				end := time.Now()
				if end.Sub(began) > o.length {
					break
				}
				if end.Before(began) {
					continue
				}
				ns = append(ns, int64(end.Sub(start)))
				if slot == 0 {
					hot = append(hot, int64(end.Sub(start)))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			o.each[i] = float64(len(ns))
			o.ns, o.hot = append(o.ns, ns...), append(o.hot, hot...)
		})
	}
	wg.Wait()
	for i := range n {
		errs = append(errs, c.clients[i].Flush(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	if len(o.ns) < n {
		return o, fmt.Errorf("%d operations by %d clients", len(o.ns), n)
	}
	return o, nil
}
