package pacer

import (
	"context"
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
