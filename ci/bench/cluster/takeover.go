package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// servers is how many members a cluster has.
const servers = 3

// killed kills one of three members, and returns the time in s from the last beat that etcd has confirmed to the first
// change that another member executes, and in ms the time that the beat took. Then it starts the member again.
func (f *fleet) killed(ctx context.Context) ([]float64, error) {
	return f.killedBeside(ctx, func() error { return nil })
}

// killedWithLeader is killed together with the leader of etcd, which is started again afterwards.
func (f *fleet) killedWithLeader(ctx context.Context) ([]float64, error) {
	leader, err := f.leader(ctx)
	if err != nil {
		return nil, err
	}
	v, err := f.killedBeside(ctx, func() error { return leader.Signal(syscall.SIGKILL) })
	return v, errors.Join(err, leader.Restart())
}

// leader waits until etcd has a leader, and returns it.
func (f *fleet) leader(ctx context.Context) (*etcd.Server, error) {
	for ctx.Err() == nil {
		if i := slices.IndexFunc(f.etcd, (*etcd.Server).Leads); i >= 0 {
			return f.etcd[i], nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("etcd has no leader: %w", ctx.Err())
}

// killedBeside is killed, beside something else.
func (f *fleet) killedBeside(ctx context.Context, beside func() error) ([]float64, error) {
	c, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	victim := f.members["c"]
	key, err := keyAt(c, victim.address)
	if err != nil {
		return nil, err
	}
	// The kill is at any time between two beats.
	wait := time.After(ttl + rand.N(ttl/6))
	var last *cachestatus.Cluster
	var beat, before time.Time // a time before the last beat was confirmed
	for waiting := true; waiting; {
		now := time.Now()
		s, err := cachestatus.GetCluster(ctx, victim.metrics)
		if err != nil {
			return nil, err
		}
		if last != nil && s.Beats > last.Beats {
			beat = before
		}
		last, before = s, now
		select {
		case <-wait:
			waiting = false
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := beside(); err != nil {
		return nil, err
	}
	victim.kill()
	if beat.IsZero() {
		return nil, fmt.Errorf("no beat within a TTL")
	}
	for err = cache.ErrUnavailable; err != nil; {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("no takeover: %w", err)
		}
		if err = c.Set(ctx, key, cache.Item{Value: []byte("value")}, 0); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
	took := time.Since(beat)
	if _, err := f.start(servers - 1); err != nil {
		return nil, err
	}
	return []float64{took.Seconds(), last.Beat * 1000}, f.members["a"].settled(ctx, servers)
}

// keyAt returns a key whose server is at an address.
func keyAt(c *cache.Cluster, address string) ([]byte, error) {
	for i := range 1000 {
		if k := key(i); c.Server(k).Address() == address {
			return k, nil
		}
	}
	return nil, fmt.Errorf("%s has no shards", address)
}

func key(i int) []byte { return fmt.Appendf(nil, "key-%012d", i) }
