package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache"
)

const (
	records = 20_000
	size    = 100 // bytes of a value
	workers = 4
	writes  = 10               // of a hundred operations
	pause   = time.Millisecond // after each: the servers run on the same processors
)

// fill stores all records.
func fill(ctx context.Context, c *cache.Cluster, size int) error {
	var puts []cache.Entry
	for i := range records {
		puts = append(puts, cache.Entry{Key: key(i), Item: cache.Item{Value: make([]byte, size)}})
	}
	return errors.Join(c.SetMulti(ctx, puts, nil)...)
}

// done is an operation of the load.
type done struct {
	key         int
	begun, took time.Duration
	miss        bool
	err         error
}

// load reads and writes records until it ends.
type load struct {
	begun time.Time
	stop  context.CancelFunc
	all   sync.WaitGroup
	mu    sync.Mutex
	list  []done
}

// begin begins a load.
func begin(ctx context.Context, c *cache.Cluster) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{begun: time.Now(), stop: stop}
	for w := range workers {
		l.all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			var list []done
			dst := make([]byte, size)
			for ctx.Err() == nil {
				d := done{key: rng.IntN(records), begun: time.Since(l.begun)}
				k := key(d.key)
				if rng.IntN(100) < writes {
					binary.LittleEndian.PutUint64(dst, rng.Uint64())
					d.err = c.Set(ctx, k, cache.Item{Value: dst}, 0)
				} else {
					_, d.err = c.GetInto(ctx, k, dst)
				}
				d.took = time.Since(l.begun) - d.begun
				d.miss = errors.Is(d.err, cache.ErrNotFound) && !errors.Is(d.err, cache.ErrUnavailable)
				if ctx.Err() == nil {
					list = append(list, d)
				}
				time.Sleep(pause)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.list = append(l.list, list...)
		})
	}
	return l
}

// now returns the time since the load began.
func (l *load) now() time.Duration { return time.Since(l.begun) }

// end ends the load, and returns how many operations were misses and how many have failed.
func (l *load) end() (misses, failed int, err error) {
	l.stop()
	l.all.Wait()
	for _, d := range l.list {
		switch {
		case d.miss:
			misses++
		case d.err != nil:
			failed, err = failed+1, d.err
		}
	}
	return misses, failed, err
}

// rate returns the operations in a second from one time to another.
func (l *load) rate(from, to time.Duration) float64 {
	n := 0
	for _, d := range l.list {
		if d.begun+d.took >= from && d.begun+d.took < to {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}

// p99 returns the 99th percentile, in ms, of the operations with some keys that were under way between two times.
func (l *load) p99(from, to time.Duration, of func(key int) bool) (float64, error) {
	var took []time.Duration
	for _, d := range l.list {
		if d.begun < to && d.begun+d.took > from && of(d.key) {
			took = append(took, d.took)
		}
	}
	if len(took) < 100 {
		return 0, fmt.Errorf("%d operations are too few", len(took))
	}
	slices.Sort(took)
	return took[len(took)*99/100].Seconds() * 1000, nil
}
