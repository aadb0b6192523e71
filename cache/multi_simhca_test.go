//go:build simhca && linux && cgo

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/simulated"
	"github.com/goverbs/goverbs/cache/server"
	_ "github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/testseed"
)

// Many keys at once, with a map and without one, by either transport, while others change them: records that are READ
// into one buffer, and such as are too long together. Each value is whole, its key's own, and no older than what was
// acknowledged before.
func TestSimulatedGetMulti(t *testing.T) {
	const keys = 60
	ctx, seed := within(t), testseed.New(t)
	s, i := simulatedPair(t, server.Config{Memory: 16 << 20, Lease: 10 * time.Second})
	pd := simulated.PD(t)
	dial := func(i *dc.Initiator, entries int) *cache.Client {
		c, err := cache.Dial(ctx, s.Addr().String(), cache.Config{DC: i, PD: pd, RequireRDMA: true, MapBytes: entries})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	var done [keys]atomic.Uint64
	writer := dial(nil, 0)
	for k := range keys {
		require.NoError(t, writer.Set(ctx, key(k), cache.Item{Value: versioned(k, 0)}, 0))
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for v := uint64(1); ; v++ {
			k := rng.IntN(keys)
			b := versioned(k, v)
			if rng.IntN(4) == 0 { // so long that not all have room in one buffer
				b = append(b, bytes.Repeat(b[:16], 1000)...)
			}
			err := writer.Set(ctx, key(k), cache.Item{Value: b}, 0)
			switch {
			case err == nil:
				done[k].Store(v)
			case !errors.Is(err, cache.ErrNoMemory):
				t.Errorf("set: %v", err)
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	for n, c := range []*cache.Client{dial(i, math.MaxInt), dial(nil, math.MaxInt), dial(i, -1), dial(nil, -1)} {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(1+n)))
			var results []cache.Result
			for {
				select {
				case <-over:
					return
				default:
				}
				var many [][]byte
				var which []int
				var least []uint64
				for range 1 + rng.IntN(keys) {
					k := rng.IntN(keys)
					many, which, least = append(many, key(k)), append(which, k), append(least, done[k].Load())
				}
				results = c.GetMulti(context.WithoutCancel(ctx), many, results)
				for i, r := range results {
					if k := which[i]; r.Err != nil || !isVersion(r.Value, k, least[i]) && !isLonger(r.Value, k, least[i]) {
						t.Errorf("key %d: %d bytes, %v", k, len(r.Value), r.Err)
					}
				}
			}
		})
	}
	time.Sleep(time.Second)
	close(over)
	all.Wait()
}

// isLonger reports whether b is a version with its beginning a thousand times behind it.
func isLonger(b []byte, key int, least uint64) bool {
	short := len(b) - 16*1000
	return short > 0 && isVersion(b[:short], key, least) && bytes.Equal(b[short:], bytes.Repeat(b[:16], 1000))
}
