package main

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/lockoffload"
)

func init() { suites["lockoffload"] = lockSuite }

// lockSuite compares chains with a client that waits for the reply to each
// step, and locks under contention with a spin lock. All of it runs in this
// process; both sides use the same kind of queue pair and wait in the same way.
func lockSuite(env) []benchmark {
	wall, instructions := []string{"wall"}, []string{"instructions"}
	rig := newLockRig()
	on := func(f func(*lockRig, context.Context) (float64, error)) pass { return onRig(rig, f) }
	serialRead, serialChange := "CMP_SWAP, READ, CMP_SWAP", "CMP_SWAP, READ, WRITE, CMP_SWAP"
	list := []benchmark{
		{name: "read_chain", unit: "us", baseline: serialRead, target: measure.AtMost(0.85), clocks: instructions,
			ours: on((*lockRig).readChain), base: on((*lockRig).serialRead)},
	}
	// A device of its own has no wire that could be delayed.
	if lab.In() {
		delay := func(name, baseline string, limit float64, ours, base func(*lockRig, context.Context) (float64, error)) benchmark {
			return benchmark{name: name, unit: "us", baseline: baseline, target: measure.AtMost(limit), clocks: wall,
				ours: late(on(ours)), base: late(on(base))}
		}
		list = append(list,
			delay("read_chain_delay", serialRead, 0.385, (*lockRig).readChain, (*lockRig).serialRead),
			delay("rmw_delay", serialChange, 0.53, (*lockRig).update, (*lockRig).serialChange),
			delay("rmw_visible_delay", serialChange, 0.29, (*lockRig).updateVisible, (*lockRig).serialChange),
			delay("agent_chain_delay", serialChange, 0.29, (*lockRig).agentChain, (*lockRig).serialChange),
		)
	}
	list = append(append(list, contended()...), holderKilled())
	return append(list, redisLock(rig)...)
}

// onRig makes the rig when it is first used.
func onRig[R any](rig func() (R, error), f func(R, context.Context) (float64, error)) pass {
	return func(ctx context.Context) (float64, error) {
		r, err := rig()
		if err != nil {
			return 0, err
		}
		return f(r, ctx)
	}
}

// oneWay is the delay of the rows that have it in their name.
const oneWay = time.Millisecond

// late is a pass with the delay in both directions.
func late(p pass) pass {
	return func(ctx context.Context) (float64, error) {
		return delayed(func() (float64, error) { return p(ctx) })
	}
}

// delayed runs f with the delay in both directions. Nothing is under way on the
// wire when it begins or ends but for heartbeats, which are sent again.
func delayed(f func() (float64, error)) (v float64, err error) {
	c, s, err := endpoints()
	if err != nil {
		return 0, err
	}
	for _, e := range []lab.Endpoint{c, s} {
		if err := lab.Impair(e.Netdev, lab.Impairment{Delay: oneWay}); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, lab.Clear(e.Netdev)) }()
	}
	return f()
}

const (
	lockBlock  = 100 // operations of one pass, of one client alone
	recordSize = 64
)

// readChain is the time of lock, READ, unlock in one post.
func (r *lockRig) readChain(ctx context.Context) (float64, error) {
	dst := make([]byte, recordSize)
	return timed(lockBlock, func() error {
		_, res, err := r.client.Read(ctx, 0, dst)
		return errors.Join(err, wantForm(res, lockoffload.FormReadChain))
	})
}

func (r *lockRig) serialRead(ctx context.Context) (float64, error) {
	return timed(lockBlock, func() error { return r.naive.read(ctx, 0) })
}

// update is the time of a change until its unlock command was answered.
func (r *lockRig) update(ctx context.Context) (float64, error) {
	return timed(lockBlock, func() error {
		res, err := r.client.Update(ctx, 0, r.change)
		if err != nil {
			return err
		}
		return res.Commit.Wait(ctx)
	})
}

// updateVisible is the time until the caller of Update goes on. The rest of the
// change is waited for between two of them, outside of the time.
func (r *lockRig) updateVisible(ctx context.Context) (float64, error) {
	ns := make([]int64, lockBlock)
	for i := range ns {
		start := time.Now()
		res, err := r.client.Update(ctx, 0, r.change)
		ns[i] = int64(time.Since(start))
		if err == nil {
			err = res.Commit.Wait(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
	return medianMicros(ns), nil
}

// change is what callers compute: the record that was read, with another first
// byte.
func (r *lockRig) change(old []byte) ([]byte, error) {
	n := copy(r.data, old)
	r.data[0]++
	return r.data[:max(n, recordSize)], nil
}

// serialChange waits for each of the four replies.
func (r *lockRig) serialChange(ctx context.Context) (float64, error) {
	return timed(lockBlock, func() error { return r.naive.change(ctx, 0) })
}

// agentChain is the time of lock, READ, WRITE, unlock by the target's agent.
func (r *lockRig) agentChain(ctx context.Context) (float64, error) {
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{
		{Kind: lockoffload.AccessRead, Data: make([]byte, recordSize)},
		{Kind: lockoffload.AccessWrite, Data: r.data},
	}}
	return timed(lockBlock, func() error {
		res, err := r.caller.Do(ctx, &ch)
		return errors.Join(err, wantForm(res, lockoffload.FormAgent))
	})
}

func wantForm(res lockoffload.Result, f lockoffload.Form) error {
	if res.Form != f || res.Tries != 1 {
		return errors.New("carried out as " + res.Form.String() + ", or tried again")
	}
	return nil
}
