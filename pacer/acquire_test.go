package pacer

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Goroutines acquire and give up: no more is outstanding than may be, and nothing is
// left.
func TestAcquire(t *testing.T) {
	p, err := New(Config{Threshold: 20000, Reserve: 1, Small: 1})
	require.NoError(t, err)
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*time.Millisecond)
				c, err := p.Acquire(ctx, 0, 4000)
				if err == nil {
					most.Store(max(most.Load(), held.Add(4000)))
					if i%7 == g {
						time.Sleep(100 * time.Microsecond)
					}
					held.Add(-4000)
					c.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(20000))
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
	require.NoError(t, p.Close())
	_, err = p.Acquire(t.Context(), 0, 1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = New(Config{Threshold: -1})
	require.ErrorIs(t, err, ErrConfig)
}

// Neither what another class nor what small ones acquire waits in line behind large
// ones that are held.
func TestAcquireInClasses(t *testing.T) {
	p, err := New(Config{Threshold: 20000, Classes: []Class{{Name: "bulk"}, {Name: "fast"}}})
	require.NoError(t, err)
	first, err := p.Acquire(t.Context(), 0, 12000)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan error, 1)
	go func() {
		_, err := p.Acquire(ctx, 0, 12000)
		held <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Alive == 2 }, time.Minute, time.Millisecond)
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	small, err := p.Acquire(soon, 0, 64)
	require.NoError(t, err)
	fast, err := p.Acquire(soon, 1, 2000)
	require.NoError(t, err)
	for _, c := range []Credit{small, fast} {
		c.Release()
	}
	cancel()
	require.ErrorIs(t, <-held, context.Canceled)
	first.Release()
	require.NoError(t, p.Reconfigure(Config{Classes: make([]Class, 3)}))
	third, err := p.Acquire(soon, 2, 64)
	require.NoError(t, err)
	third.Release()
	for _, class := range []int{-1, 3, 1 << 62} {
		_, err = p.Acquire(soon, class, 64)
		require.ErrorIs(t, err, ErrConfig)
	}
	for _, n := range []int{-1, math.MinInt, math.MaxInt} {
		_, err = p.Acquire(soon, 0, n)
		require.ErrorIs(t, err, ErrConfig)
	}
	require.Zero(t, p.Stats().Outstanding)
	require.NoError(t, p.Close())
}

// Close ends what waits for credit: nothing would grant it.
func TestCloseEndsAcquire(t *testing.T) {
	p, err := New(Config{Rate: 1, Burst: 5000})
	require.NoError(t, err)
	c, err := p.Acquire(t.Context(), 0, 4096)
	require.NoError(t, err)
	held := make(chan error, 1)
	go func() {
		_, err := p.Acquire(context.Background(), 0, 4096)
		held <- err
	}()
	require.Eventually(t, func() bool { return p.Stats().Alive == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, p.Close())
	select {
	case err := <-held:
		require.ErrorIs(t, err, ErrClosed)
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
	c.Release()
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	defer p.Close()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		c, _ := p.Acquire(context.Background(), 0, 4096)
		c.Release()
	}))
}

// BenchmarkAdmit is what admission costs, with nothing in the way: both halves.
func BenchmarkAdmit(b *testing.B) {
	p, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		c, _ := p.Acquire(context.Background(), 0, 4096)
		c.Release()
	}
}

// TryAcquire takes credit that is there, and none that waiters are to get.
func TestTryAcquire(t *testing.T) {
	p, err := New(Config{Threshold: 20000})
	require.NoError(t, err)
	first, ok, err := p.TryAcquire(0, 12000)
	require.NoError(t, err)
	require.True(t, ok)
	for range 100 { // passed over as often as it may be
		_, ok, err = p.TryAcquire(0, 12000)
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.Equal(t, 1, p.Stats().Alive, "it does not stand in line")
	waits := make(chan Credit)
	go func() {
		c, err := p.Acquire(context.Background(), 0, 12000)
		if err != nil {
			t.Error(err)
		}
		waits <- c
	}()
	require.Eventually(t, func() bool { return p.Stats().Alive == 2 }, time.Minute, time.Millisecond)
	_, ok, err = p.TryAcquire(0, 4000)
	require.NoError(t, err)
	require.False(t, ok, "another one was there first")
	first.Release()
	second := <-waits
	third, ok, err := p.TryAcquire(0, 4000)
	require.NoError(t, err)
	require.True(t, ok)
	second.Release()
	third.Release()
	require.Zero(t, p.Stats().Outstanding)
	require.Zero(t, p.Stats().Alive)
	_, _, err = p.TryAcquire(1, 4000)
	require.ErrorIs(t, err, ErrConfig)
	require.NoError(t, p.Close())
	_, ok, err = p.TryAcquire(0, 1)
	require.ErrorIs(t, err, ErrClosed)
	require.False(t, ok)
}

// Credit that is kept, or waits for a dead server, keeps none from others when the threshold is
// tuned.
func TestCreditThatIsKept(t *testing.T) {
	p, err := New(Config{Tune: true})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kept, err := p.Acquire(ctx, 0, 16<<10)
	require.NoError(t, err)
	for probes := uint64(0); probes < 2; probes = p.Stats().Probes {
		c, err := p.Acquire(ctx, 0, 16<<10)
		require.NoError(t, err)
		time.Sleep(100 * time.Microsecond)
		c.Release()
	}
	kept.Release()
	require.Zero(t, p.Stats().Outstanding)
	require.NoError(t, p.Close())
}
