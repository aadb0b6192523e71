package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/internal/simrules"
)

const (
	portRate = "8Mbit" // of each server's port
	portSize = 1024    // bytes of a value
	getters  = 24      // READs under way
	getsFor  = time.Second
)

// ports compares three servers with one, all behind ports that are slower than the processors.
func ports(e harness.Env) harness.Benchmark {
	var fleets []*fleet
	start := sync.OnceValues(func() ([]*cache.Cluster, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var clients []*cache.Cluster
		var rules []string
		for i, members := range []int{servers, 1} {
			f, err := newFleet(e.Rdmacached, 211+10*i, 1, members)
			if err != nil {
				return nil, err
			}
			fleets = append(fleets, f)
			c, err := f.dial(ctx)
			if err == nil {
				err = fill(ctx, c, portSize)
			}
			if err != nil {
				return nil, err
			}
			if err := whole(ctx, c); err != nil {
				return nil, err
			}
			clients = append(clients, c)
			for _, m := range f.members {
				rules = append(rules, fmt.Sprintf("%s 127.0.0.1 rate=%s", strings.TrimSuffix(m.address, ":7481"), portRate))
			}
		}
		file, err := simrules.OwnFile()
		if err != nil {
			return nil, err
		}
		return clients, simrules.Write(file, rules...)
	})
	side := func(i int) harness.Pass {
		return harness.One(func(ctx context.Context) (float64, error) {
			clients, err := start()
			if err != nil {
				return 0, err
			}
			return gets(ctx, clients[i])
		})
	}
	b := harness.Compare(harness.Figure{Name: "three_servers", Unit: "op/s", Target: measure.AtLeast(2.7)}, []string{harness.Wall}, side(0), harness.Side{Name: "one server", Run: side(1)})
	b.Close = func() error {
		clients, err := start()
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		for _, f := range fleets {
			err = errors.Join(err, f.close())
		}
		file, e := simrules.OwnFile()
		if e == nil {
			e = simrules.Clear(file)
		}
		return errors.Join(err, e)
	}
	return b
}

// whole waits until the clients of all servers have their maps.
func whole(ctx context.Context, c *cache.Cluster) error {
	for ctx.Err() == nil {
		entries := 0
		for _, s := range c.Stats() {
			if s.Whole {
				entries += s.Entries
			}
		}
		if entries == records {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("the maps have not come: %w: %+v", ctx.Err(), c.Stats())
}

// gets returns how many records are READ in a second.
func gets(ctx context.Context, c *cache.Cluster) (float64, error) {
	begun := time.Now()
	counts, errs := make([]int, getters), make([]error, getters)
	var all sync.WaitGroup
	for g := range getters {
		all.Go(func() {
			dst := make([]byte, portSize)
			for time.Since(begun) < getsFor && errs[g] == nil {
				_, errs[g] = c.GetInto(ctx, key(rand.IntN(records)), dst)
				counts[g]++
			}
		})
	}
	all.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64(n) / time.Since(begun).Seconds(), errors.Join(errs...)
}
