package cache

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
)

// Long values behind a slow link, as in suite pacer: 40 Mbit/s in front of the requester, with a
// queue of 64 KiB that loses what does not fit.
const (
	linkRate  = 40e6
	linkQueue = 64 << 10
	longSize  = 256 << 10
	longGets  = 8 // at a time
	longTime  = 2 * time.Second
	longWarm  = 500 * time.Millisecond
	shortEach = 2 * time.Millisecond
	aloneSize = 1 << 20
	aloneGets = 10
)

func longKey(i int) []byte { return key(4_000_000 + i) }

// newLong is a server with long values, and a short one. The last long one is for GETs alone.
func newLong() (*served, error) {
	s, err := newServed()
	if err != nil {
		return nil, err
	}
	for i := range longGets + 1 {
		n := longSize
		if i == longGets {
			n = aloneSize
		}
		if err := s.client.Set(context.Background(), longKey(i), cache.Item{Value: make([]byte, n)}, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *served) dialWhole(cfg cache.Config) (*cache.Client, error) {
	c, err := s.dial(cfg)
	if err == nil {
		err = s.whole(c, len(sizes)+longGets+1)
	}
	return c, err
}

// beside returns the 99th percentile of the times of short GETs beside long ones in ms, and the bytes
// of long values in MB/s.
func (s *served) beside(ctx context.Context, cfg cache.Config) (v []float64, err error) {
	v = make([]float64, 2)
	bulk, err := s.dialWhole(cfg)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, bulk.Close()) }()
	few, err := s.dialWhole(cfg)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, few.Close()) }()
	if lab.Topology() == "wire" {
		if err := lab.LimitIngressQueue("h0", linkRate, linkQueue); err != nil {
			return v, err
		}
		defer func() { err = errors.Join(err, lab.UnlimitIngress("h0")) }()
	}
	ctx, cancel := context.WithTimeout(ctx, longWarm+longTime)
	defer cancel()
	var wg sync.WaitGroup
	var bytes atomic.Int64
	for i := range longGets {
		wg.Go(func() {
			for dst := make([]byte, longSize); ctx.Err() == nil; {
				if it, err := bulk.GetInto(ctx, longKey(i), dst); err == nil {
					bytes.Add(int64(len(it.Value)))
				}
			}
		})
	}
	var took []time.Duration
	get := func() {
		begin := time.Now()
		_, _ = few.GetInto(ctx, key(64), make([]byte, 64))
		took = append(took, time.Since(begin))
		time.Sleep(shortEach)
	}
	for begin := time.Now(); time.Since(begin) < longWarm; {
		get()
	}
	bytes.Store(0)
	took = took[:0]
	begin := time.Now()
	for ctx.Err() == nil {
		get()
	}
	seconds := time.Since(begin).Seconds()
	wg.Wait()
	slices.Sort(took)
	v[0], v[1] = took[len(took)*99/100].Seconds()*1000, float64(bytes.Load())/seconds/1e6
	return v, nil
}

// alone returns the median time of a long GET that nothing is beside, in us.
func (s *served) alone(ctx context.Context, cfg cache.Config) (us float64, err error) {
	c, err := s.dialWhole(cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	dst := make([]byte, aloneSize)
	get := func() error { _, err := c.GetInto(ctx, longKey(longGets), dst); return err }
	if err := get(); err != nil { // registers the memory
		return 0, err
	}
	return rig.Timed(aloneGets, get)
}

// long compares the clients of the default with those that READ each value at once.
func long() []harness.Benchmark {
	s := rig.Lazy(newLong)
	const unpaced = "one READ each"
	at := cache.Config{PaceFrom: -1}
	beside := func(cfg cache.Config) harness.Pass {
		return s.Values(func(s *served, ctx context.Context) ([]float64, error) { return s.beside(ctx, cfg) })
	}
	alone := func(cfg cache.Config) harness.Pass {
		return s.Pass(func(s *served, ctx context.Context) (float64, error) { return s.alone(ctx, cfg) })
	}
	return []harness.Benchmark{
		{Name: "get_64B_beside_long", Judged: harness.Both,
			Sides: []harness.Side{{Name: "ours", Run: beside(cache.Config{})}, {Name: unpaced, Run: beside(at)}},
			Figures: []harness.Figure{
				{Name: "get_64B_p99_beside_long", Unit: "ms", Of: "ours", Baseline: unpaced},
				{Name: "long_gets_goodput", Unit: "MB/s", Of: "ours", Baseline: unpaced, Value: 1},
			}},
		harness.Compare(harness.Figure{Name: "get_1MiB_alone", Unit: "us"}, harness.Both, alone(cache.Config{}), harness.Side{Name: unpaced, Run: alone(at)}),
	}
}
