//go:build linux

package cache_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/testseed"
)

// Clients that READ buckets, beside changes, evictions and a table that doubles: nothing is
// torn, and nothing that was acknowledged before a Get began is missed.
func TestBucketsUnderChanges(t *testing.T) {
	s := serve(t, server.Config{Memory: 4 << 20, Lease: quiet})
	address := s.Addr().String()
	writer := dial(t, address, cache.Config{})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var clients []*cache.Client
	for _, bytes := range []int{1, -1} {
		clients = append(clients, dial(t, address, cache.Config{MapBytes: bytes}))
	}
	depth, begin := s.Stats().Table, time.Now()
	seed := testseed.New(t)
	const keys = 64
	var done [keys]atomic.Uint64 // the last version that was acknowledged
	for i := range keys {
		require.NoError(t, writer.Set(within(t), key(i), cache.Item{Value: versioned(i, 1)}, 0))
		done[i].Store(1)
	}
	var all sync.WaitGroup
	all.Go(func() { // changes
		rng := rand.New(rand.NewPCG(seed, 1))
		for v := uint64(2); ctx.Err() == nil; v++ {
			i := rng.IntN(keys)
			if err := writer.Set(context.WithoutCancel(ctx), key(i), cache.Item{Value: versioned(i, v)}, 0); err == nil {
				done[i].Store(v)
			}
		}
	})
	all.Go(func() { // the table doubles
		for i := keys; ctx.Err() == nil && i < 6000; i++ {
			set(t, s, key(i), nil)
			if s.Stats().Table > depth {
				time.Sleep(time.Millisecond)
				if time.Since(begin) > time.Second {
					break
				}
			}
		}
		cancel()
	})
	for n, c := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(2+n)))
			dst := make([]byte, 4096)
			check := func(i int, least uint64, value []byte, err error) {
				if errors.Is(err, cache.ErrNotFound) {
					if s.Stats().Evicted == 0 {
						t.Errorf("key %d is missed: %v", i, err)
					}
				} else if err != nil || !isVersion(value, i, least) {
					t.Errorf("key %d: %d bytes, %v", i, len(value), err)
				}
			}
			var results []cache.Result
			for ctx.Err() == nil {
				i := rng.IntN(keys)
				if rng.IntN(8) > 0 {
					least := done[i].Load()
					it, err := c.GetInto(context.WithoutCancel(ctx), key(i), dst)
					check(i, least, it.Value, err)
					continue
				}
				var many [][]byte
				var least []uint64
				for k := range 8 {
					many, least = append(many, key((i+k)%keys)), append(least, done[(i+k)%keys].Load())
				}
				results = c.GetMulti(context.WithoutCancel(ctx), many, results)
				for k, r := range results {
					check((i+k)%keys, least[k], r.Value, r.Err)
				}
			}
		})
	}
	all.Wait()
	require.Greater(t, s.Stats().Table, depth, "it has not doubled")
	for _, c := range clients {
		st := c.Stats()
		t.Logf("%d hits, %d of buckets, %d refused, %d calls; the table has %d bytes", st.Hits, st.Probes, st.Refused, st.Calls, s.Stats().Table)
		require.Greater(t, st.Probes, st.Calls/4)
		require.Equal(t, uint64(1), st.Sessions)
	}
}

// versioned is a value of a key's, of a length that its version says.
func versioned(key int, v uint64) []byte {
	b := make([]byte, 16+v%200*8)
	for i := 0; i < len(b); i += 16 {
		binary.LittleEndian.PutUint64(b[i:], v)
		if i+16 <= len(b) {
			binary.LittleEndian.PutUint64(b[i+8:], uint64(key))
		}
	}
	return b
}

// isVersion reports whether b is a whole value of key, of version least or later.
func isVersion(b []byte, key int, least uint64) bool {
	if len(b) < 16 {
		return false
	}
	v := binary.LittleEndian.Uint64(b)
	return v >= least && string(b) == string(versioned(key, v))
}
