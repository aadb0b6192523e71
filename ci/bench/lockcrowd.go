package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/lockoffload"
)

const (
	crowdSlots = 64
	crowdMost  = 32
	crowdSkew  = 0.99 // of the zipf distribution of slots: a fifth of all choices is the first one
	crowdWarm  = 200 * time.Millisecond
	crowdTime  = 2 * time.Second
)

// contended are locks under contention: so many clients, each with a queue pair
// of its own, change a record of 64 bytes in one slot after another, without a
// pause between them. The ratio is of changes in a second; spin locks take the
// lock by CMP_SWAP until it succeeds and give it back by WRITE, as is usual in the
// literature. With a delay a change takes round trips instead of the CPU. Beside it: spin locks with lockoffload's backoff, and whole chains
// given to the target's agent, as Client.Do does when there is one.
//
// In fair mode the changes are chains given to Client.Do, which gives them to the
// agent. Beside it, with tickets in the name: lock, READ and WRITE, unlock from
// afar, in the order in which clients came to the slot.
func contended() []benchmark {
	both := []string{"instructions", "wall"}
	crowd := sync.OnceValues(newCrowd)
	// outcome is one figure of what n clients got done.
	outcome := func(n int, of func(crowdOutcome) float64, op crowdOp) pass {
		return onRig(crowd, func(c *crowdRig, ctx context.Context) (float64, error) {
			o, err := c.run(ctx, n, op)
			if err != nil {
				return 0, err
			}
			return of(o), nil
		})
	}
	rate := func(n int, op crowdOp) pass { return outcome(n, crowdOutcome.rate, op) }
	var list []benchmark
	for _, n := range []int{2, 8, crowdMost} {
		of := ""
		if n != crowdMost {
			of = "_" + strconv.Itoa(n)
		}
		list = append(list,
			benchmark{name: "contended_goodput" + of, unit: "op/s", baseline: "CAS spin", target: measure.AtLeast(2), clocks: both,
				ours: rate(n, (*crowdRig).update), base: rate(n, (*crowdRig).spin)},
			benchmark{name: "contended_goodput_agent" + of, unit: "op/s", baseline: "CAS spin", target: measure.AtLeast(2), clocks: both,
				ours: rate(n, (*crowdRig).do), base: rate(n, (*crowdRig).spin)},
			benchmark{name: "contended_p99_over_p50" + of, unit: "1", target: measure.AtMost(5), clocks: both,
				ours: outcome(n, crowdOutcome.tail, (*crowdRig).doFair)},
			benchmark{name: "jain" + of, unit: "1", target: measure.AtLeast(0.95), clocks: both,
				ours: outcome(n, crowdOutcome.jain, (*crowdRig).doFair)},
			benchmark{name: "contended_p99_over_p50_tickets" + of, unit: "1", target: measure.AtMost(5), clocks: both,
				ours: outcome(n, crowdOutcome.tail, (*crowdRig).tickets)},
			benchmark{name: "jain_tickets" + of, unit: "1", target: measure.AtLeast(0.95), clocks: both,
				ours: outcome(n, crowdOutcome.jain, (*crowdRig).tickets)},
		)
		if lab.In() {
			list = append(list, benchmark{name: "contended_goodput_delay" + of, unit: "op/s", baseline: "CAS spin", clocks: both,
				ours: late(rate(n, (*crowdRig).update)), base: late(rate(n, (*crowdRig).spin))})
		}
	}
	return append(list,
		benchmark{name: "contended_goodput_backoff", unit: "op/s", baseline: "CAS with backoff",
			ours: rate(crowdMost, (*crowdRig).update), base: rate(crowdMost, (*crowdRig).spinBackoff)},
		benchmark{name: "contended_hot_p99_over_p50_tickets", unit: "1", ours: outcome(crowdMost, crowdOutcome.hotTail, (*crowdRig).tickets)},
		benchmark{name: "contended_spin_p99_over_p50", unit: "1", ours: outcome(crowdMost, crowdOutcome.tail, (*crowdRig).spin)},
	)
}

// crowdRig are the clients of one target, of each kind as many.
type crowdRig struct {
	*lockTarget
	clients []*lockoffload.Client
	helped  []*lockoffload.Client // with the agent
	naive   []*naive
	data    []byte
}

func newCrowd() (*crowdRig, error) {
	t, err := newLockTarget(lockoffload.Layout{Slots: crowdSlots, Size: recordSize, Clients: 2 * crowdMost}, time.Minute)
	if err != nil {
		return nil, err
	}
	c := &crowdRig{lockTarget: t, data: make([]byte, recordSize)}
	for i := range crowdMost {
		for _, list := range []*[]*lockoffload.Client{&c.clients, &c.helped} {
			one, _, err := t.newClient(lockoffload.Retry{})
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
		n, err := t.newNaive(uint64(i + 1))
		if err != nil {
			return nil, err
		}
		c.naive = append(c.naive, n)
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
	return c.chain(ctx, i, lockoffload.Chain{Slot: slot})
}

func (c *crowdRig) doFair(ctx context.Context, i, slot int) error {
	return c.chain(ctx, i, lockoffload.Chain{Slot: slot, Fair: true})
}

func (c *crowdRig) chain(ctx context.Context, i int, ch lockoffload.Chain) error {
	ch.Accesses = []lockoffload.Access{
		{Kind: lockoffload.AccessRead, Data: make([]byte, recordSize)},
		{Kind: lockoffload.AccessWrite, Data: c.data},
	}
	_, err := c.helped[i].Do(ctx, &ch)
	return err
}

func (c *crowdRig) tickets(ctx context.Context, i, slot int) error {
	h, _, err := c.clients[i].Acquire(ctx, slot, lockoffload.LockOptions{Mode: lockoffload.Fair})
	if err != nil {
		return err
	}
	_, err = h.Write(ctx, 0, c.data)
	return errors.Join(err, h.Unlock(ctx))
}

func (c *crowdRig) spin(ctx context.Context, i, slot int) error {
	return c.naive[i].spin(ctx, slot, nil)
}

func (c *crowdRig) spinBackoff(ctx context.Context, i, slot int) error {
	return c.naive[i].spin(ctx, slot, &c.naive[i].pauses)
}

// crowdOutcome is what the clients of one pass got done in its time.
type crowdOutcome struct {
	each   []float64 // operations of each client
	ns     []int64   // what each operation took
	hot    []int64   // those on the first slot
	length time.Duration
}

func (o crowdOutcome) rate() float64    { return float64(len(o.ns)) / o.length.Seconds() }
func (o crowdOutcome) tail() float64    { return tailOf(o.ns) }
func (o crowdOutcome) hotTail() float64 { return tailOf(o.hot) }

// tailOf is the 99th percentile over the median.
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

// run has n clients change records for crowdTime, after warming up. What began
// in that time counts when it ends in it.
func (c *crowdRig) run(ctx context.Context, n int, op crowdOp) (crowdOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	runtime.GC()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	var stop atomic.Bool
	o := crowdOutcome{each: make([]float64, n), length: crowdTime}
	began := time.Now().Add(crowdWarm)
	for i := range n {
		wg.Go(func() {
			pick := zipf(crowdSlots, crowdSkew, uint64(100+i))
			var ns, hot []int64
			var err error
			for err == nil && !stop.Load() {
				slot, start := pick(), time.Now()
				if err = op(c, ctx, i, slot); err != nil {
					stop.Store(true)
					break
				}
				end := time.Now()
				if end.Sub(began) > crowdTime {
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
