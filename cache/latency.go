package cache

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/internal/histogram"
)

// Latency is a histogram of the operations of one kind that went by one transport, rdma, dc or tcp:
//   - read: gets that READs settled, hits and misses; copies of a near cache are not among them,
//   - get: gets by a call, whether a READ failed before or not,
//   - touch, store, delete, arith, flush: other calls,
//   - get_multi and set_multi: all keys together; the calls among them count besides.
//
// The time while there is no connection does not count, and a call that is repeated counts for each
// attempt that has a reply. Fields are Operation, Transport, and the histogram Nanoseconds.
type Latency = latency.Latency

// Histogram has buckets of powers of two: N[i] counts values below 1<<i and at least half of that, the
// last one all others; Sum is the sum of all.
type Histogram = histogram.Counts

// took counts an operation of this session that has ended. begun is when it began, by elapsed.
func (s *session) took(op latency.Op, begun time.Duration) {
	by := latency.RDMA
	switch s.by {
	case TCP:
		by = latency.TCP
	case DC:
		by = latency.DC
	}
	s.c.latency.Add(by, op, s.elapsed()-begun)
}
