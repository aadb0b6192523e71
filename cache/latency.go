package cache

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/latency"
	"github.com/goverbs/goverbs/histogram"
)

// Latency is a histogram of the operations of one kind that went by one transport, rdma, dc or tcp:
//   - read: gets that READs settled, hits and misses; copies of a near cache are not among them. One get in
//     eight is timed, and counts eight times,
//   - get: gets by a call, whether a READ failed before or not,
//   - touch, store, delete, arith, flush: other calls,
//   - get_multi and set_multi: all keys together; the calls among them count besides.
//
// The time while there is no connection does not count, and a call that is repeated counts for each
// attempt that has a reply.
type Latency struct {
	Operation, Transport string
	Nanoseconds          histogram.Counts
}

// sampling is how many gets by READs one of them stands for: two looks at the clock are a good part of what
// a READ takes.
const sampling = 8

// timed reports whether a get is timed, and returns when it began.
func (s *session) timed() (timed bool, begun time.Duration) {
	n := &s.c.count
	if sampled(n.hits.Load() + n.misses.Load()) {
		return true, s.elapsed()
	}
	return false, 0
}

// sampled reports whether a number is one of those, among sampling, that are timed. They begin with 0, and are
// spread evenly over numbers at any distance: of a loop of eight gets a remainder would choose the same one each
// time, or none.
func sampled(n uint64) bool {
	const golden = 0x9e3779b97f4a7c15 // 1<<64 by the golden ratio
	return n*golden < 1<<63/(sampling/2)
}

// took counts an operation of this session that has ended. begun is when it began, by elapsed.
func (s *session) took(op latency.Op, begun time.Duration) { s.tookEach(op, begun, 1) }

// tookEach is took for an operation that stands for n.
func (s *session) tookEach(op latency.Op, begun time.Duration, n uint64) {
	by := latency.RDMA
	switch s.by {
	case TCP:
		by = latency.TCP
	case DC:
		by = latency.DC
	}
	s.c.latency.AddTimes(by, op, s.elapsed()-begun, n)
}
