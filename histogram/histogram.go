// Package histogram counts values in buckets of powers of two. Counting takes no lock and
// allocates nothing.
package histogram

import (
	"math/bits"
	"sync/atomic"
)

// buckets is how many there are: the last one begins at nine minutes in nanoseconds, and at nine
// years in milliseconds.
const buckets = 40

// Counts is a histogram. Its zero value is empty. Entry i of N counts the values that have i
// bits: less than 1<<i, and at least 1<<(i-1). The last one counts all larger values too.
type Counts struct {
	N   [buckets]uint64 // N[i]: values below 1<<i, and at least half of that; the last one has all others
	Sum uint64          // of all values
}

func bucket(v uint64) int { return min(bits.Len64(v), buckets-1) }

// Add counts a value.
func (c *Counts) Add(v uint64) {
	c.N[bucket(v)]++
	c.Sum += v
}

// Total returns how many values there are.
func (c *Counts) Total() (n uint64) {
	for _, k := range c.N {
		n += k
	}
	return n
}

// Atomic is Counts for several goroutines. Its zero value is empty.
type Atomic struct {
	n   [buckets]atomic.Uint64
	sum atomic.Uint64
}

// Add counts a value.
func (a *Atomic) Add(v uint64) { a.AddTimes(v, 1) }

// AddTimes counts a value n times: it stands for others, of which only it was measured.
func (a *Atomic) AddTimes(v, n uint64) {
	a.n[bucket(v)].Add(n)
	a.sum.Add(v * n)
}

// Load returns the counts. Values that are added meanwhile may be in the sum alone, or not be in
// it.
func (a *Atomic) Load() (c Counts) {
	for i := range a.n {
		c.N[i] = a.n[i].Load()
	}
	c.Sum = a.sum.Load()
	return c
}
