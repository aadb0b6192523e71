package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/lockoffload"
)

// killedLease is long beside what a busy machine delays the server's watch by.
const (
	killedLease = time.Second
	kills       = 3
)

// holderKilled is the time from the end of a client that holds a lock until
// another one has the lock, in leases: the longest of some. The holder ends at a
// random time after a heartbeat, without a sign: its queue pair goes to ERROR,
// after which nothing of it reaches the target.
func holderKilled() benchmark {
	return benchmark{name: "holder_killed_recovery", unit: "leases", target: measure.AtMost(3), clocks: []string{"instructions", "wall"},
		ours: func(ctx context.Context) (float64, error) {
			t, err := newLockTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 4}, killedLease)
			if err != nil {
				return 0, err
			}
			defer t.srv.Close()
			other, _, err := t.newClient(lockoffload.Retry{})
			if err != nil {
				return 0, err
			}
			defer other.Close()
			longest := 0.0
			for range kills {
				took, err := killHolder(ctx, t, other)
				if err != nil {
					return 0, err
				}
				longest = max(longest, took.Seconds()/killedLease.Seconds())
			}
			return longest, nil
		}}
}

func killHolder(ctx context.Context, t *lockTarget, other *lockoffload.Client) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*killedLease)
	defer cancel()
	holder, qp, err := t.newClient(lockoffload.Retry{})
	if err != nil {
		return 0, err
	}
	defer holder.Close()
	if _, _, err := holder.Lock(ctx, 0); err != nil {
		return 0, err
	}
	time.Sleep(killedLease + rand.N(killedLease/3))
	if err := qp.ToError(); err != nil {
		return 0, err
	}
	start := time.Now()
	h, _, err := other.Lock(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("after the holder's end: %w", err)
	}
	took := time.Since(start)
	return took, h.Unlock(ctx)
}
