package cache

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// probed are records that a client with one entry in its map READs: it READs a bucket, and
// sometimes two, and the record.
type probed struct {
	*served
	whole, small *cache.Client
}

// probedKeys fill a little more than half of the server's table, which is about the mean between
// two doublings.
const probedKeys = 1000

func newProbed() (p *probed, err error) {
	p = &probed{}
	if p.served, err = newServed(); err != nil {
		return nil, err
	}
	for i := range probedKeys {
		if err := p.client.Set(context.Background(), probedKey(i), cache.Item{Value: make([]byte, 64)}, 0); err != nil {
			return nil, err
		}
	}
	if p.small, err = p.dial(cache.Config{MapBytes: 1}); err != nil {
		return nil, err
	}
	p.whole = p.client
	return p, p.served.whole(p.whole, probedKeys+len(sizes))
}

func probedKey(i int) []byte { return key(2_000_000 + i) }

// gets returns the median time of a GET of ever other keys in microseconds. All must be hits.
func (p *probed) gets(ctx context.Context, c *cache.Client, probes uint64) (float64, error) {
	keys := make([][]byte, getBlock)
	for i := range keys {
		keys[i] = probedKey(i)
	}
	dst := make([]byte, 64)
	before, i := c.Stats(), 0
	us, err := rig.Timed(getBlock, func() error {
		_, err := c.GetInto(ctx, keys[i], dst)
		i++
		return err
	})
	st := c.Stats()
	if n := st.Probes - before.Probes; err == nil && (st.Hits-before.Hits != getBlock || n > probes || n < probes*99/100) {
		err = fmt.Errorf("%d GETs had %d hits, %d of them by buckets", getBlock, st.Hits-before.Hits, n)
	}
	return us, err
}

// together returns the keys in a second that GetMulti reads, of a client with one entry in its map.
func (p *probed) together(ctx context.Context) (float64, error) {
	keys := make([][]byte, multiKeys)
	for i := range keys {
		keys[i] = probedKey(i)
	}
	var results []cache.Result
	us, err := rig.Timed(multiRounds, func() error {
		results = p.small.GetMulti(ctx, keys, results)
		for i := range results {
			if results[i].Err != nil {
				return results[i].Err
			}
		}
		return nil
	})
	return multiKeys / us * 1e6, err
}

// oneByOne returns the same for a call for each key.
func (p *probed) oneByOne(ctx context.Context) (float64, error) {
	dst := make([]byte, 64)
	us, err := rig.Timed(multiRounds, func() error {
		for i := range multiKeys {
			if _, err := p.small.GetInto(ctx, probedKey(i), dst); err != nil {
				return err
			}
		}
		return nil
	})
	return multiKeys / us * 1e6, err
}

// bucketMulti compares one call for many keys that are looked for in buckets with a call for each.
func bucketMulti() harness.Benchmark {
	all := rig.Lazy(newProbed)
	return harness.Compare(harness.Figure{Name: "multiget32_buckets", Unit: "key/s"}, instructions, all.Pass((*probed).together),
		harness.Side{Name: "single GETs", Run: all.Pass((*probed).oneByOne)})
}

// bucketRead compares with the GETs of a client that has the map, and with perftest's READ of the
// record alone.
func bucketRead() harness.Benchmark {
	all := rig.Lazy(newProbed)
	const read = "ib_read_lat"
	return harness.Benchmark{Name: "bucket_read", Judged: instructions,
		Sides: []harness.Side{
			{Name: "ours", Run: all.Pass(func(p *probed, ctx context.Context) (float64, error) { return p.gets(ctx, p.small, getBlock) })},
			{Name: "one READ", Run: all.Pass(func(p *probed, ctx context.Context) (float64, error) { return p.gets(ctx, p.whole, 0) })},
			{Name: read, Run: perftest(64)},
		},
		Figures: []harness.Figure{
			{Name: "bucket_read", Unit: "us", Of: "ours", Baseline: "one READ", Target: measure.AtMost(2.1)},
			{Name: "bucket_read_vs_perftest", Unit: "us", Of: "ours", Baseline: read},
		}}
}
