package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// The workloads of YCSB: its records, which are ten fields of 100 bytes, and its skew.
const (
	crowd     = 16 // clients, each with a connection of its own
	records   = 1000
	valueSize = 1000
	skew      = 0.99
	crowdWarm = 100 * time.Millisecond
	crowdTime = time.Second
)

func ycsb() []harness.Benchmark {
	ours, theirs := rig.Lazy(func() (*oursCrowd, error) { return newCrowd(serverRole, cache.Config{}) }), rig.Lazy(newTCPCrowd)
	busy := rig.Lazy(func() (*oursCrowd, error) { return newCrowd(busyRole, cache.Config{PollFor: polling}) })
	var list []harness.Benchmark
	for _, w := range []struct {
		name    string
		updates float64
		target  float64
	}{{"ycsb_b_vs_memcached", 0.05, 4}, {"ycsb_c_vs_memcached", 0, 4}, {"ycsb_a_vs_memcached", 0.5, 1.5}} {
		f := harness.Figure{Name: w.name, Unit: "op/s", Target: measure.AtLeast(w.target)}
		list = append(list, harness.Compare(f, harness.Both,
			ours.Pass(func(c *oursCrowd, ctx context.Context) (float64, error) { return c.run(ctx, w.updates) }),
			harness.Side{Name: tcp, Run: theirs.Pass(func(c *tcpCrowd, ctx context.Context) (float64, error) {
				return run(ctx, w.updates, c.user)
			})}))
	}
	// What polling for longer does before clients and server park.
	for _, w := range []struct {
		name    string
		updates float64
	}{{"ycsb_c_polling", 0}, {"ycsb_a_polling", 0.5}} {
		mix := func(c *oursCrowd, ctx context.Context) (float64, error) { return c.run(ctx, w.updates) }
		list = append(list, harness.Compare(harness.Figure{Name: w.name, Unit: "op/s"}, []string{harness.Wall}, busy.Pass(mix),
			harness.Side{Name: "parks at once", Run: ours.Pass(mix)}))
	}
	return list
}

// user is one client: what it does in a read, and in an update.
type user struct {
	get func(ctx context.Context, key, dst []byte) (int, error)
	set func(ctx context.Context, key, value []byte) error
}

// run returns the operations in a second of all clients together.
func run(ctx context.Context, updates float64, users func(i int) user) (float64, error) {
	var wg sync.WaitGroup
	var done atomic.Int64
	var stop atomic.Bool
	errs := make([]error, crowd)
	begin := time.Now().Add(crowdWarm)
	end := begin.Add(crowdTime)
	for i := range crowd {
		wg.Go(func() {
			u, pick, dice := users(i), rig.Zipf(records, skew, uint64(100+i)), rand.New(rand.NewPCG(uint64(i), 7))
			dst, value := make([]byte, valueSize), make([]byte, valueSize)
			n := int64(0)
			for errs[i] == nil && !stop.Load() {
				k := key(pick())
				if dice.Float64() < updates {
					value[0]++
					errs[i] = u.set(ctx, k, value)
				} else if got, err := u.get(ctx, k, dst); err != nil || got != valueSize {
					errs[i] = fmt.Errorf("get %s: %d bytes: %w", k, got, err)
				}
				now := time.Now()
				if now.After(end) {
					break
				}
				if now.After(begin) {
					n++
				}
			}
			if errs[i] != nil {
				stop.Store(true)
			}
			done.Add(n)
		})
	}
	wg.Wait()
	return float64(done.Load()) / crowdTime.Seconds(), errors.Join(errs...)
}

// oursCrowd are as many clients of one server of ours.
type oursCrowd struct{ clients []*cache.Client }

// run is the workload with as many Ps as programs have by default. memcached's clients keep the
// spare ones, since each blocks its thread in reads.
func (c *oursCrowd) run(ctx context.Context, updates float64) (float64, error) {
	defer rig.DefaultProcs()()
	return run(ctx, updates, c.user)
}

func newCrowd(role string, cfg cache.Config) (*oursCrowd, error) {
	s, err := newServedAs(role)
	if err != nil {
		return nil, err
	}
	c := &oursCrowd{}
	for i := range records {
		if err := s.client.Set(context.Background(), key(i), cache.Item{Value: make([]byte, valueSize)}, 0); err != nil {
			return nil, err
		}
	}
	entries := s.client.Stats().Entries
	for range crowd {
		one, err := s.dial(cfg)
		if err != nil {
			return nil, err
		}
		if err := s.whole(one, entries); err != nil {
			return nil, err
		}
		c.clients = append(c.clients, one)
	}
	return c, nil
}

func (c *oursCrowd) user(i int) user {
	one := c.clients[i]
	return user{
		get: func(ctx context.Context, key, dst []byte) (int, error) {
			it, err := one.GetInto(ctx, key, dst)
			return len(it.Value), err
		},
		set: func(ctx context.Context, key, value []byte) error {
			return one.Set(ctx, key, cache.Item{Value: value}, 0)
		},
	}
}

// tcpCrowd are as many of memcached.
type tcpCrowd struct{ clients []*tcpClient }

func newTCPCrowd() (*tcpCrowd, error) {
	m, err := newMemcached()
	if err != nil {
		return nil, err
	}
	for i := range records {
		if err := m.client.set(key(i), make([]byte, valueSize)); err != nil {
			return nil, err
		}
	}
	c := &tcpCrowd{}
	for range crowd {
		one, err := m.dial()
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, one)
	}
	return c, nil
}

func (c *tcpCrowd) user(i int) user {
	one := c.clients[i]
	return user{
		get: func(_ context.Context, key, dst []byte) (int, error) { return one.get(key, dst) },
		set: func(_ context.Context, key, value []byte) error { return one.set(key, value) },
	}
}
