//go:build linux

package cache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

const slice = 16 << 10

// narrow lets little more than two parts out at a time, and never takes credit back by itself: what
// is not given back holds everything up.
func narrow(t testing.TB) *pacer.Pacer {
	t.Helper()
	p, err := pacer.New(pacer.Config{Slice: slice, Threshold: 40 << 10, Overdue: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// put stores a value from the server's own process.
func put(t testing.TB, s *server.Server, k, value []byte) {
	t.Helper()
	a, err := s.Do(context.Background(), &kv.Request{Op: kv.OpSet, Key: k, Value: value})
	require.NoError(t, err)
	require.Equal(t, kv.OK, a.Status)
}

// parts is how many READs a value is, by default: of a record of more than 64 KiB one for each
// slice.
func parts(k []byte, n int) int {
	if n += 64 + len(k); n <= 64<<10 {
		return 1
	}
	return (n + slice - 1) / slice
}

// What is long is READ in parts, with credit for each, by no other message, and without garbage;
// what is short goes past the pacer.
func TestLongValuesInParts(t *testing.T) {
	s := serve(t, server.Config{Memory: 10 << 20, Lease: quiet})
	p := narrow(t)
	c, ctx := dial(t, s.Addr().String(), cache.Config{Pacer: p}), within(t)
	sizes := []int{0, 1000, 60_000, 64 << 10, 100_000, 300_001, 700_000}
	value := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * i >> 3)
		}
		return b
	}
	var keys [][]byte
	for _, n := range sizes {
		keys = append(keys, key(n))
		put(t, s, key(n), value(n))
	}
	whole(t, c, len(sizes))
	dst := make([]byte, 1<<20)
	get := func() {
		if _, err := c.GetInto(ctx, keys[5], dst); err != nil {
			t.Fatal(err)
		}
	}
	get()
	allocatesNothing(t, 5, get)
	packets := watch(t) // it allocates
	packets.take()
	all := 0
	for _, n := range sizes {
		before, granted := c.Stats(), p.Stats().Granted
		it, err := c.GetInto(ctx, key(n), dst)
		require.NoError(t, err, n)
		require.True(t, bytes.Equal(value(n), it.Value), n)
		want := parts(key(n), n)
		all += want
		st := c.Stats()
		require.Equal(t, [3]uint64{1, uint64(want), 0}, [3]uint64{st.Hits - before.Hits, st.Reads - before.Reads, st.Calls - before.Calls}, n)
		if want == 1 {
			require.Equal(t, granted, p.Stats().Granted, n)
		} else {
			require.Equal(t, granted+uint64(want), p.Stats().Granted, n)
		}
	}
	require.Zero(t, sends(packets.take()), "no message goes either way")
	before := c.Stats()
	results := c.GetMulti(ctx, keys, nil)
	for i, r := range results {
		require.NoError(t, r.Err, sizes[i])
		require.True(t, bytes.Equal(value(sizes[i]), r.Value), sizes[i])
	}
	st := c.Stats()
	require.Equal(t, [2]uint64{uint64(len(keys)), 0}, [2]uint64{st.Hits - before.Hits, st.Calls - before.Calls})
	require.GreaterOrEqual(t, int(st.Reads-before.Reads), all)

	// Many that are long only together: in parts of several records.
	keys = keys[:0]
	for i := range 32 {
		k := key(10_000_000 + i)
		keys = append(keys, k)
		put(t, s, k, value(5000+i))
	}
	whole(t, c, len(sizes)+len(keys))
	reads, granted := c.Stats().Reads, p.Stats().Granted
	for i, r := range c.GetMulti(ctx, keys, results) {
		require.NoError(t, r.Err, i)
		require.True(t, bytes.Equal(value(5000+i), r.Value), i)
	}
	require.Equal(t, reads+32, c.Stats().Reads)
	require.Equal(t, granted+11, p.Stats().Granted, "three of them fit into a slice")
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
}

// A pacer that cannot be is an error of its own, and there is no way around it by TCP. That of the
// device is another one when it was closed.
func TestPacersThatCannotBe(t *testing.T) {
	s := serve(t, server.Config{Memory: 8 << 20, Lease: quiet})
	ctx, ends := within(t), lab.Require(t, 2)
	long := make([]byte, 200_000)
	put(t, s, key(1), long)
	put(t, s, key(2), []byte("short"))
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, cache.ErrPacer)
		require.NotErrorIs(t, err, cache.ErrClosed, "it is not the client that is closed")
	}
	p, err := pacer.New(pacer.Config{})
	require.NoError(t, err)
	c := dial(t, s.Addr().String(), cache.Config{Pacer: p})
	whole(t, c, 2)
	_, err = c.Get(ctx, key(1))
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, err = c.Get(ctx, key(1))
	refused(err)
	_, err = c.Get(ctx, key(2))
	require.NoError(t, err, "it is not paced")
	for _, r := range c.GetMulti(ctx, [][]byte{key(1), key(1)}, nil) {
		refused(r.Err)
	}
	require.Equal(t, uint64(1), c.Stats().Sessions, "nothing ends by that")
	_, err = cache.Dial(ctx, s.Addr().String(), near(t, cache.Config{Pacer: p}))
	refused(err)
	unpaced := dial(t, s.Addr().String(), cache.Config{Pacer: p, PaceFrom: -1})
	whole(t, unpaced, 2)
	_, err = unpaced.Get(ctx, key(1))
	require.NoError(t, err)
	require.Equal(t, uint64(1), unpaced.Stats().Reads)

	of := func(i int) *pacer.Pacer {
		d, err := verbs.Open(ends[i].Device, verbs.DeviceConfig{})
		require.NoError(t, err)
		p, err := pacer.ForDevice(d)
		require.NoError(t, err)
		require.Equal(t, ends[i].Device, p.Device())
		require.NoError(t, d.Close())
		return p
	}
	other, own := of(1), of(0)
	_, err = cache.Dial(ctx, s.Addr().String(), near(t, cache.Config{Pacer: other}))
	refused(err)
	require.ErrorContains(t, err, ends[1].Device)
	require.NoError(t, other.Close())

	c = dial(t, s.Addr().String(), cache.Config{})
	whole(t, c, 2)
	for range 2 {
		granted := own.Stats().Granted
		_, err = c.Get(ctx, key(1))
		require.NoError(t, err)
		require.Greater(t, own.Stats().Granted, granted, "nothing was said of a pacer: it is the device's")
		require.NoError(t, own.Close())
		own = of(0)
	}
	require.NoError(t, own.Close())
}

// While the pacer is paused long GETs wait, as long as their contexts and the client allow, and
// short ones do not.
func TestPacerIsPaused(t *testing.T) {
	s := serve(t, server.Config{Memory: 8 << 20, Lease: quiet})
	p, ctx := narrow(t), within(t)
	put(t, s, key(1), make([]byte, 200_000))
	put(t, s, key(2), []byte("short"))
	c := dial(t, s.Addr().String(), cache.Config{Pacer: p})
	whole(t, c, 2)
	p.Pause(true)
	held := func(ctx context.Context) chan error {
		alive := p.Stats().Alive
		done := make(chan error, 1)
		go func() { _, err := c.Get(ctx, key(1)); done <- err }()
		require.Eventually(t, func() bool { return p.Stats().Alive > alive }, stuck, time.Millisecond)
		return done
	}
	ending, cancel := context.WithCancel(ctx)
	gone, goes := held(ending), held(ctx)
	_, err := c.Get(ctx, key(2))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	p.Pause(false)
	require.NoError(t, <-goes)
	require.Equal(t, uint64(1), c.Stats().Sessions)
	p.Pause(true)
	stays := held(ctx)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-stays, cache.ErrClosed)
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
}

// Long values that change while they are READ in parts, on a wire that loses packets: none is torn,
// and none is older than what was acknowledged before its GET began. Two clients' calls share what a
// pacer lets out, and none holds up another for good.
func TestLongValuesUnderChanges(t *testing.T) {
	length := time.Second
	if !testing.Short() {
		length = 20 * time.Second
	}
	s := serve(t, server.Config{Memory: 12 << 20, MaxValue: 1 << 20, Lease: 2 * time.Second})
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.02, Burst: lab.Burst{Begin: 0.001, End: 0.5}})
	}
	p := narrow(t)
	ctx, cancel := context.WithTimeout(context.Background(), length+stuck)
	defer cancel()
	const keys = 3
	var floors [keys]atomic.Uint64
	value := func(k int, v uint64) []byte {
		return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, uint64(k)<<48|v), 9000+int(v%20)*500)
	}
	for k := range keys {
		put(t, s, key(k), value(k, 0))
	}
	seed := testseed.New(t)
	var reads, changes atomic.Uint64
	end := time.Now().Add(length)
	running := func() bool {
		return ctx.Err() == nil && (time.Now().Before(end) || reads.Load() < 30 || changes.Load() < 20)
	}
	bad := func(format string, args ...any) { t.Errorf(format, args...); cancel() }
	var wg sync.WaitGroup
	wg.Go(func() { // in the server's process
		for v := uint64(1); running(); v++ {
			k := int(v % keys)
			a, err := s.Do(ctx, &kv.Request{Op: kv.OpSet, Key: key(k), Value: value(k, v)})
			if err != nil {
				bad("set: %v", err)
				return
			}
			if a.Status == kv.OK {
				floors[k].Store(v)
				changes.Add(1)
			}
			time.Sleep(30 * time.Millisecond)
		}
	})
	for i := range 2 {
		c := dial(t, s.Addr().String(), cache.Config{Pacer: p})
		for j := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			wg.Go(func() {
				dst := make([]byte, 1<<20)
				for running() {
					k := rng.IntN(keys)
					floor := floors[k].Load()
					it, err := c.GetInto(ctx, key(k), dst)
					if errors.Is(err, cache.ErrNotFound) { // not stored, for lack of memory
						continue
					}
					if err != nil {
						bad("get: %v", err)
						return
					}
					v := binary.LittleEndian.Uint64(it.Value) &^ (0xffff << 48)
					if v < floor || !bytes.Equal(it.Value, value(k, v)) {
						bad("key %d, version %d: torn, or %d was acknowledged before", k, v, floor)
					}
					reads.Add(1)
				}
			})
		}
		defer func() {
			st := c.Stats()
			t.Logf("%d hits by %d READs, %d refused, %d calls, %d sessions", st.Hits, st.Reads, st.Refused, st.Calls, st.Sessions)
		}()
	}
	wg.Wait()
	require.NoError(t, ctx.Err())
	t.Logf("%d values read, %d changes; %+v", reads.Load(), changes.Load(), p.Stats())
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
}

// Behind a slow link short GETs do not wait for all that long ones ask for at a time.
func TestShortGETsBesideLongOnes(t *testing.T) {
	lab.RequireTopology(t, "wire")
	s := serve(t, server.Config{Memory: 8 << 20, MaxValue: 1 << 20, Lease: quiet})
	for i := range 8 {
		put(t, s, key(i), make([]byte, 256<<10))
	}
	put(t, s, key(100), make([]byte, 64))
	measure := func(cfg cache.Config) (p90 time.Duration) {
		bulk, few := dial(t, s.Addr().String(), cfg), dial(t, s.Addr().String(), cfg)
		whole(t, bulk, 9)
		whole(t, few, 9)
		for i := range 8 { // registers the memory
			_, err := bulk.Get(within(t), key(i))
			require.NoError(t, err)
		}
		require.NoError(t, lab.LimitIngress("h0", 40e6))
		defer func() { require.NoError(t, lab.UnlimitIngress("h0")) }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var bytes atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				dst := make([]byte, 256<<10)
				for ctx.Err() == nil {
					if it, err := bulk.GetInto(ctx, key(i), dst); err == nil {
						bytes.Add(int64(len(it.Value)))
					}
				}
			})
		}
		var took []time.Duration
		for dst := make([]byte, 64); ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
			begin := time.Now()
			_, _ = few.GetInto(ctx, key(100), dst)
			took = append(took, time.Since(begin))
		}
		wg.Wait()
		slices.Sort(took)
		t.Logf("%d short ones: half %v, 90 %% %v, 99 %% %v; %d bytes of long ones", len(took), took[len(took)/2], took[len(took)*9/10], took[len(took)*99/100], bytes.Load())
		return took[len(took)*9/10]
	}
	p, err := pacer.New(pacer.Config{Slice: slice, Threshold: 40 << 10})
	require.NoError(t, err)
	paced := measure(cache.Config{Pacer: p})
	require.NotZero(t, p.Stats().Granted)
	require.NoError(t, p.Close())
	unpaced := measure(cache.Config{PaceFrom: -1})
	require.Less(t, 2*paced, unpaced)
}
