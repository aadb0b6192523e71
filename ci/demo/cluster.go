package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// counts are of what the load has done.
type counts struct{ ops, misses, failed int }

// load reads and updates records of a cluster until its context ends.
type load struct {
	cluster *cache.Cluster
	pause   time.Duration // of a goroutine after each operation
	running sync.WaitGroup

	mu      sync.Mutex // of what follows
	counts  counts     // since they were taken last
	failure error      // the last one
	failed  time.Time  // when that was
}

// take returns the counts since the last time.
func (l *load) take() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	l.counts = counts{}
	return c
}

func (l *load) run(ctx context.Context) {
	for w := range workers {
		l.running.Go(func() {
			dice := rand.New(rand.NewPCG(rand.Uint64(), uint64(w)))
			for ctx.Err() == nil {
				miss, err := l.once(ctx, pick(dice), dice.Float64() < updates)
				if ctx.Err() == nil {
					l.count(miss, err)
				}
				time.Sleep(l.pause)
			}
		})
	}
}

func (l *load) count(miss bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.counts.ops++; {
	case err != nil:
		l.counts.failed++
		l.failure, l.failed = err, time.Now()
	case miss:
		l.counts.misses++
	}
}

// once reads or updates a record, and stores one that is missed.
func (l *load) once(ctx context.Context, i int, update bool) (miss bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !update {
		if _, err = l.cluster.Get(ctx, keyOf(i)); !errors.Is(err, cache.ErrNotFound) {
			return false, err
		}
	}
	return !update, l.cluster.Set(ctx, keyOf(i), cache.Item{Value: value}, 0)
}

// scene is what happens to the cluster while the load goes on.
type scene struct {
	text     string
	do       func(context.Context) error
	lossless bool // nothing may be missed, and nothing may fail
}

// show is the third act: three servers share the keys of one cache, by way of etcd. Under load one joins, one is
// drained, one is killed, and comes back.
func (c *crew) show(ctx context.Context) (err error) {
	one, two, three := c.all[0], c.all[1], c.all[2]
	begin := func(m *member, members int) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := m.begin(ctx); err != nil {
				return err
			}
			return one.settled(ctx, members)
		}
	}
	for i, m := range c.all[:2] {
		if err := begin(m, i+1)(ctx); err != nil {
			return err
		}
	}
	l := &load{pause: c.pause}
	if l.cluster, err = cache.DialCluster(ctx, []string{one.address()}, cache.ClusterConfig{Config: cache.Config{RequireRDMA: true}}); err != nil {
		return err
	}
	defer l.cluster.Close()
	for i := range records {
		if err := l.cluster.Set(ctx, keyOf(i), cache.Item{Value: value}, 0); err != nil {
			return err
		}
	}
	fmt.Printf("\na cluster on etcd with a TTL of %v, %d goroutines that read and update; %v in a row:\n", c.ttl, workers, c.interval)
	fmt.Println("     s    op/s   misses   failed     shards of a     b     c")
	t := &clusterTable{load: l, crew: c, begun: time.Now()}
	loading, stop := context.WithCancel(ctx)
	l.run(loading)
	defer l.running.Wait()
	defer stop()
	for _, s := range []scene{
		{"two servers", func(context.Context) error { time.Sleep(2 * c.interval); return nil }, true},
		{"server c joins: it copies its records before it serves them", begin(three, 3), true},
		{"server b is drained by SIGTERM: it hands over its records", two.drain, true},
		{"server c " + c.death + ": server a takes over its keys, without records", func(ctx context.Context) error {
			return errors.Join(three.place.kill(ctx), one.settled(ctx, 1))
		}, false},
		{"server c is back, and gets its share with the records", begin(three, 2), false},
	} {
		if err := t.play(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// clusterTable is the live table.
type clusterTable struct {
	load  *load
	crew  *crew
	begun time.Time
}

// play has a scene happen, and prints rows until it is over.
func (t *clusterTable) play(ctx context.Context, s scene) error {
	t.load.take()
	fmt.Println("  " + s.text)
	begun, done := time.Now(), make(chan error, 1)
	row := begun
	go func() { done <- s.do(ctx) }()
	var sum counts
	for over := false; !over; {
		time.Sleep(t.crew.interval)
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			over = true
		default:
		}
		n := t.load.take()
		sum = counts{sum.ops + n.ops, sum.misses + n.misses, sum.failed + n.failed}
		now := time.Now()
		rate := float64(n.ops) / now.Sub(row).Seconds()
		row = now
		known, err := cachestatus.GetCluster(ctx, t.crew.all[0].metrics())
		if err != nil {
			known = nil // it is slow; that it has ended is an error of the scene
		}
		fmt.Printf("%6.1f %7.0f %8d %8d %15s %5s %5s\n", now.Sub(t.begun).Seconds(), rate, n.misses, n.failed,
			shards(known, "a"), shards(known, "b"), shards(known, "c"))
	}
	t.load.mu.Lock()
	failure, gap := t.load.failure, t.load.failed.Sub(begun)
	t.load.mu.Unlock()
	text := fmt.Sprintf("  %d operations, %d misses, %d failed", sum.ops, sum.misses, sum.failed)
	if sum.failed > 0 {
		text += fmt.Sprintf("; the last one after %.1f s", gap.Seconds())
	}
	fmt.Println(text)
	if s.lossless && sum.misses+sum.failed > 0 {
		return fmt.Errorf("%s: %d misses, %d failed, the last with: %w", s.text, sum.misses, sum.failed, cmp.Or(failure, cache.ErrNotFound))
	}
	return nil
}

// shards returns how many shards a server has, or "-" if it is no member. Without a cluster that is not known.
func shards(c *cachestatus.Cluster, id string) string {
	if c == nil {
		return "?"
	}
	for _, m := range c.Members {
		if m.ID == id {
			return strconv.Itoa(m.Shards)
		}
	}
	return "-"
}
