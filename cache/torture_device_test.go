//go:build linux

package cache_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/testseed"
)

// stamped is a value that says which one it is in all its words: key and version, and is
// as long as they say.
func stamped(dst []byte, key, version uint64) []byte {
	for range 4 + version*13%800 {
		dst = binary.LittleEndian.AppendUint64(dst, key<<48|version)
	}
	return dst
}

// versionOf is the version of a value, if it is whole.
func versionOf(key uint64, b []byte, scratch []byte) (uint64, bool) {
	if len(b) < 8 {
		return 0, false
	}
	v := binary.LittleEndian.Uint64(b) &^ (0xffff << 48)
	return v, v < 1<<40 && string(stamped(scratch[:0], key, v)) == string(b)
}

// tortured is a key: its only writer says which versions no reader may see any more.
type tortured struct {
	floor   atomic.Uint64 // versions below it are over: a change after them was acknowledged
	version uint64        // of the writer alone
	unknown bool          // of the writer alone: a change may still come into effect, so there are no more
}

const torturedKeys = 120

// torturedFor is how long that takes: GOVERBS_CACHE_SECONDS, or a minute in the long version of most.
func torturedFor(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if v := os.Getenv("GOVERBS_CACHE_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		return time.Duration(n) * time.Second
	}
	if testing.Short() {
		return short
	}
	return time.Minute
}

// Writers, readers and an evicting server at once, on a wire that loses packets: no value
// is torn, and none is older than what was acknowledged before its READ began. The long version
// has ten million values read, or takes two hours.
func TestWritersReadersEvictors(t *testing.T) {
	s := serve(t, server.Config{Memory: 256 << 10, Lease: 2 * time.Second, Log: 256})
	length, enough := torturedFor(t, 2*time.Second), uint64(math.MaxUint64)
	if !testing.Short() && os.Getenv("GOVERBS_CACHE_SECONDS") == "" {
		length, enough = 2*time.Hour, 10_000_000
	}
	tortureAll(t, s, length, enough, func(i int) *cache.Client {
		return dial(t, s.Addr().String(), cache.Config{MapBytes: torturedMaps[i]})
	})
}

// The same through initiators, of which two clients share one, and one has room for a few entries, while others
// hang, or are gone without a word, so that the target is replaced all the time.
func TestWritersReadersEvictorsThroughInitiators(t *testing.T) {
	length := torturedFor(t, 0)
	if length == 0 {
		t.Skip("takes a minute: without -short, or for GOVERBS_CACHE_SECONDS")
	}
	s := serve(t, server.Config{Memory: 256 << 10, Lease: 10 * time.Second, Log: 256, DC: server.DCConfig{Responders: 16}})
	all := []*dc.Initiator{initiatorAs(t, dc.InitiatorConfig{Contexts: 2}), initiatorAs(t, dc.InitiatorConfig{Contexts: 1})}
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() {
		n := 0
		dialer := from(func() netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(n >> 8), byte(n)}) }) // another one each time: it does not have to wait
		for ; ctx.Err() == nil; n++ {
			conn, err := dialer.DialContext(ctx, "tcp", s.Addr().String())
			if err != nil {
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			if _, err = link.Greet(ctx, conn, greet.Hello{Transport: greet.DC}, nil, nil); err == nil && n%2 == 0 {
				_, _ = io.CopyN(io.Discard, conn, 1<<20) // it hears, and says nothing
			}
			stop()
			_ = conn.Close()
			time.Sleep(200 * time.Millisecond)
		}
	})
	tortureAll(t, s, length, math.MaxUint64, func(i int) *cache.Client {
		return dial(t, s.Addr().String(), cache.Config{DC: all[i/2], MapBytes: torturedMaps[i]})
	})
	st := s.Stats().DC
	t.Logf("%d targets", 1+st.Replaced)
	require.NotZero(t, st.Replaced)
}

// torturedMaps are the MapBytes of the clients: the first has a map now, and then none, the second has none, and the
// third has a few entries.
var torturedMaps = [...]int{0, -1, 10 * 30}

// tortureAll has clients do that to a server, for so long or until enough was read.
func tortureAll(t *testing.T, s *server.Server, length time.Duration, enough uint64, connect func(int) *cache.Client) {
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.02, Burst: lab.Burst{Begin: 0.002, End: 0.5}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), length+stuck)
	defer cancel()
	seed := testseed.New(t)
	keys := make([]tortured, torturedKeys)
	var reads, missed, changes atomic.Uint64
	end := time.Now().Add(length)
	// Slow machines take longer until there is something to see.
	running := func() bool {
		return ctx.Err() == nil && (time.Now().Before(end) && reads.Load() < enough || reads.Load() < 200 || changes.Load() < 50 || s.Stats().Evicted < 100)
	}
	var wg sync.WaitGroup
	bad := func(format string, args ...any) { t.Errorf(format, args...); cancel() }
	var all []*cache.Client
	for i := range torturedMaps {
		c := connect(i)
		all = append(all, c)
		for j := range 2 {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			wg.Go(func() { // reads
				dst, scratch := make([]byte, 8192), []byte(nil)
				for running() {
					k := uint64(rng.IntN(torturedKeys))
					floor := keys[k].floor.Load()
					it, err := c.GetInto(ctx, key(int(k)), dst)
					if errors.Is(err, cache.ErrNotFound) {
						missed.Add(1)
						continue
					} else if err != nil {
						bad("get: %v", err)
						return
					}
					v, whole := versionOf(k, it.Value, scratch)
					if !whole || v < floor {
						bad("key %d: whole: %v, version %d, %d was acknowledged before: %.100x", k, whole, v, floor, it.Value)
					}
					reads.Add(1)
				}
			})
		}
		rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
		wg.Go(func() { // writes its own keys
			for running() {
				k := uint64(rng.IntN(torturedKeys/3)*3 + i)
				w := &keys[k]
				if w.unknown {
					time.Sleep(time.Millisecond)
					continue
				}
				w.version++
				var err error
				if rng.IntN(5) == 0 {
					if err = c.Delete(ctx, key(int(k))); errors.Is(err, cache.ErrNotFound) {
						err = nil
					}
				} else {
					err = c.Set(ctx, key(int(k)), cache.Item{Value: stamped(nil, k, w.version)}, 0)
				}
				if errors.Is(err, cache.ErrNoMemory) {
					continue
				} else if errors.Is(err, cache.ErrOutcomeUnknown) && ctx.Err() == nil && !testing.Short() {
					t.Logf("key %d is not changed any more: %v", k, err) // it was late: hours on a busy machine have such moments
					w.unknown = true
					continue
				} else if err != nil {
					bad("change: %v", err)
					return
				}
				w.floor.Store(w.version)
				changes.Add(1)
			}
		})
	}
	wg.Go(func() { // has a map, and then none
		for m := wire.Probed; running(); m = wire.Probed + wire.Streamed - m {
			all[0].Switch(m)
			time.Sleep(50 * time.Millisecond)
		}
	})
	wg.Go(func() { // fills the memory from the server's own process
		rng := rand.New(rand.NewPCG(seed, 1000))
		for running() {
			for range 5 {
				q := kv.Request{Op: kv.OpSet, Key: strconv.AppendInt(nil, rng.Int64N(1000), 10), Value: make([]byte, rng.IntN(1<<rng.IntN(15)))}
				if _, err := s.Do(ctx, &q); err != nil {
					bad("load: %v", err)
					return
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	wg.Wait()
	var hits, refused, sessions uint64
	for _, c := range all {
		st := c.Stats()
		hits, refused, sessions = hits+st.Hits, refused+st.Refused, sessions+st.Sessions
	}
	st := s.Stats()
	t.Logf("%d values read, %d by READs alone, %d READs refused, %d misses, %d changes, %d evictions, %d sessions, %d refused for memory, %d cut off",
		reads.Load(), hits, refused, missed.Load(), changes.Load(), st.Evicted, sessions, st.NoMemory, st.Cut)
	require.NoError(t, ctx.Err())
	require.NotZero(t, hits)
	require.NotZero(t, all[1].Stats().Probes)
}
