package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sort"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/goverbs/goverbs/cache"
)

const (
	workers = 8
	updates = 0.05 // YCSB's workload B
	skew    = 0.99
	turn    = 300 * time.Millisecond // of each in a row of the table
)

// What happens before which row of the table.
const (
	rows  = 12
	death = 4
	life  = 8
)

// visit is the service: it reads through two servers of the cache by RDMA, and in turns through
// memcached over TCP on the same wire, while one of the two is killed and comes back.
func visit(ctx context.Context, host string) error {
	d, addresses, memcached, err := direct(ctx, host)
	if err != nil {
		return err
	}
	defer d.conn.Close()
	cluster, err := cache.DialCluster(ctx, addresses, cache.ClusterConfig{
		Config: cache.Config{RequireRDMA: true}, MissWhenDown: true, GatherTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer cluster.Close()
	ours := &shop{cache: cluster, loader: cache.NewLoader(cluster, cache.LoaderConfig{})}
	var theirs *rival
	if memcached != "" {
		if theirs, err = dialRival(ctx, memcached); err != nil {
			return err
		}
		defer theirs.close()
	}
	var puts []cache.Entry
	for i := range records { // both begin with all that there is
		puts = append(puts, cache.Entry{Key: keyOf(i), Item: cache.Item{Value: value}})
		if err := theirs.set(ctx, 0, i); err != nil {
			return err
		}
	}
	if err := errors.Join(cluster.SetMulti(ctx, puts, nil)...); err != nil {
		return err
	}
	fmt.Printf("\na service of %d goroutines, %d records of %d bytes, zipf %.2f, %.0f %% updates; %d ms of each in turn, wall clock:\n",
		workers, records, valueSize, skew, 100*updates, turn/time.Millisecond)
	fmt.Println("        cache, 2 servers, READs by RDMA            memcached over TCP")
	fmt.Println("     s    op/s    hits     p50 us    p99 us      op/s     p50 us    p99 us")
	begin := time.Now()
	for row := range rows {
		switch row {
		case death:
			err = d.have("kill 1")
			fmt.Println("  server 2 is killed: its keys are misses, which go to the source; the other's are hits")
		case life:
			err = d.have("start 1")
			fmt.Println("  server 2 is back, and empty: what is asked for is loaded once")
		}
		if err != nil {
			return err
		}
		us, err := crowd(ctx, ours.do)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%6.1f %7.0f %6.1f%% %10.0f %9.0f", time.Since(begin).Seconds(), us.rate(), us.hits(), us.us(50), us.us(99))
		if theirs != nil {
			them, err := crowd(ctx, theirs.do)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %9.0f %10.0f %9.0f", them.rate(), them.us(50), them.us(99))
		}
		fmt.Println(line)
	}
	var reads, calls uint64
	for _, s := range cluster.Stats() {
		reads, calls = reads+s.Reads, calls+s.Calls
		fmt.Printf("%s by %s: %d hits by READs alone, %d calls, %d connections\n", s.Address, s.Transport, s.Hits, s.Calls, s.Sessions)
	}
	return d.have("end")
}

// shop is the service's way to records: by the cache, or from the source.
type shop struct {
	cache  *cache.Cluster
	loader *cache.Loader
}

var value = make([]byte, valueSize)

func keyOf(i int) []byte { return fmt.Appendf(nil, "record-%09d", i) }

// set stores a record. A server that is down is no failure of the service.
func (s *shop) set(ctx context.Context, _, i int) error {
	err := s.cache.Set(ctx, keyOf(i), cache.Item{Value: value}, 0)
	if errors.Is(err, cache.ErrUnavailable) || errors.Is(err, cache.ErrOutcomeUnknown) {
		return nil
	}
	return err
}

// do reads or updates a record, and reports whether it was in the cache.
func (s *shop) do(ctx context.Context, worker, i int, update bool) (hit bool, err error) {
	if update {
		return false, s.set(ctx, worker, i)
	}
	hit = true
	it, err := s.loader.Load(ctx, keyOf(i), 0, func(context.Context) (cache.Item, error) {
		hit = false
		time.Sleep(time.Millisecond) // what a source takes at the least
		return cache.Item{Value: value}, nil
	})
	if err == nil && len(it.Value) != valueSize {
		err = fmt.Errorf("record %d has %d bytes", i, len(it.Value))
	}
	return hit, err
}

// tally counts what goroutines have done in a turn.
type tally struct {
	ops, reads, found int
	took              time.Duration
	times             *hdrhistogram.Histogram // of reads
}

func newTally() *tally { return &tally{times: hdrhistogram.New(1, int64(time.Minute), 3)} }

func (t *tally) rate() float64        { return float64(t.ops) / t.took.Seconds() }
func (t *tally) us(q float64) float64 { return float64(t.times.ValueAtQuantile(q)) / 1e3 }
func (t *tally) hits() float64        { return 100 * float64(t.found) / float64(max(t.reads, 1)) }
func (t *tally) add(o *tally) {
	t.ops, t.reads, t.found = t.ops+o.ops, t.reads+o.reads, t.found+o.found
	t.times.Merge(o.times)
}

// crowd has all workers call do for a turn.
func crowd(ctx context.Context, do func(ctx context.Context, worker, record int, update bool) (bool, error)) (*tally, error) {
	all := newTally()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	begin := time.Now()
	for w := range workers {
		wg.Go(func() {
			mine, dice := newTally(), rand.New(rand.NewPCG(rand.Uint64(), uint64(w)))
			var err error
			for err == nil && time.Since(begin) < turn {
				update, start, hit := dice.Float64() < updates, time.Now(), false
				if hit, err = do(ctx, w, pick(dice), update); err != nil {
					break
				}
				if mine.ops++; !update {
					mine.reads++
					_ = mine.times.RecordValue(int64(time.Since(start)))
				}
				if hit {
					mine.found++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(mine)
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	all.took = time.Since(begin)
	return all, failed
}

// cumulated are the chances of the first records, added up, by Zipf's law.
var cumulated = func() (sums [records]float64) {
	sum := 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -skew)
		sums[i] = sum
	}
	return sums
}()

// pick chooses a record.
func pick(dice *rand.Rand) int {
	x := dice.Float64() * cumulated[records-1]
	return sort.SearchFloat64s(cumulated[:], x)
}

// dialPort connects to a host that may not listen yet.
func dialPort(ctx context.Context, host, port string) (net.Conn, error) {
	var d net.Dialer
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return conn, err
		}
	}
}
