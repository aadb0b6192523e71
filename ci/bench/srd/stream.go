package srd

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/srd"
)

// streamer keeps messages under way.
type streamer struct {
	q     *srd.SendQueue
	rs    []srd.Request
	cs    []srd.Completion
	depth int
	since []time.Time     // when each message of the last send was posted
	took  []time.Duration // how long they took, in the order of ending
}

const batch = 32

func newStreamer(ep *srd.Endpoint, to srd.Addr, size, depth int) (*streamer, error) {
	q, err := ep.NewQueue(srd.QueueConfig{})
	s := &streamer{q: q, cs: make([]srd.Completion, 2*batch), depth: depth}
	data := [][]byte{make([]byte, size)}
	for range batch {
		s.rs = append(s.rs, srd.Request{To: to, Data: data})
	}
	return s, err
}

// send sends n messages, and waits until all are delivered.
func (s *streamer) send(ctx context.Context, n int) error {
	posted, done := 0, 0
	s.since, s.took = slices.Grow(s.since[:0], n), slices.Grow(s.took[:0], n)
	for done < n {
		if k := min(batch, n-posted, s.depth-(posted-done)); k == batch || k > 0 && posted+k == n {
			now := time.Now()
			for i := range k {
				s.rs[i].ID = uint64(posted + i)
				s.since = append(s.since, now)
			}
			k, err := s.q.Post(s.rs[:k]...)
			if err != nil {
				return err
			}
			posted += k
			continue
		}
		k, err := s.q.Wait(ctx, s.cs)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, c := range s.cs[:k] {
			if err := c.Status.Err(); err != nil {
				return err
			}
			s.took = append(s.took, now.Sub(s.since[c.ID]))
		}
		done += k
	}
	return nil
}

// streamRate is MiB/s of messages of 1 KiB.
func streamRate(ctx context.Context, ep *srd.Endpoint, to srd.Addr) (float64, error) {
	s, err := newStreamer(ep, to, 1024, 128)
	if err != nil {
		return 0, err
	}
	return s.rate(ctx, 1024, 512, 1024)
}

func (s *streamer) rate(ctx context.Context, size, warm, n int) (float64, error) {
	if err := s.send(ctx, warm); err != nil {
		return 0, err
	}
	time.Sleep(calming)
	start := time.Now()
	err := s.send(ctx, n)
	return float64(n*size) / (1 << 20) / time.Since(start).Seconds(), err
}

// allocations of a message, when all is warm.
func allocations() harness.Benchmark {
	f := harness.Figure{Name: "allocations", Unit: "per message", Target: measure.AtMost(0.01)}
	return harness.Plain(f, instructions, one(func(ctx context.Context) (float64, error) { return paired(ctx, srd.Config{}, allocationsOf) }))
}

func allocationsOf(ctx context.Context, p *pair) (float64, error) {
	s, err := newStreamer(p.a, p.b.Addr(), 1024, 128)
	if err != nil {
		return 0, err
	}
	if err := s.send(ctx, 2000); err != nil {
		return 0, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 2000
	if err := s.send(ctx, n); err != nil {
		return 0, err
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / n, nil
}
