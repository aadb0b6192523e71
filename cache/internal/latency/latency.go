// Package latency counts how long the operations of a cache take, by operation and by transport.
package latency

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/histogram"
)

// Op is a kind of operation.
type Op uint8

const (
	Get      Op = iota // by a call
	Touch              // a get that sets the expiry
	Store              // set, add, replace, compare and swap, append, prepend
	Delete             //
	Arith              // increment, decrement
	Flush              //
	Read               // a get by READs alone
	GetMulti           // of all keys together
	SetMulti           // likewise
	ops
)

var opNames = [ops]string{"get", "touch", "store", "delete", "arith", "flush", "read", "get_multi", "set_multi"}

// Of returns the kind of a request.
func Of(q *kv.Request) Op {
	switch q.Op {
	case kv.OpGet:
		if q.Want&kv.WantTouch != 0 {
			return Touch
		}
		return Get
	case wire.OpList:
		return Get
	case kv.OpDelete:
		return Delete
	case kv.OpArith:
		return Arith
	case kv.OpFlush:
		return Flush
	}
	return Store
}

// Transport is how an operation reaches the server.
type Transport uint8

const (
	RDMA Transport = iota
	DC
	TCP
	Gateway // by memcached's protocol
	transports
)

var transportNames = [transports]string{"rdma", "dc", "tcp", "gateway"}

// Table has a histogram for each operation and transport. Its zero value is empty. Any number of
// goroutines may use it.
type Table struct {
	all [transports][ops]histogram.Atomic
}

// Add counts an operation.
func (t *Table) Add(by Transport, op Op, took time.Duration) {
	t.AddTimes(by, op, took, 1)
}

// AddTimes counts an operation that stands for n.
func (t *Table) AddTimes(by Transport, op Op, took time.Duration, n uint64) {
	t.all[by][op].AddTimes(uint64(max(took, 0)), n)
}

// Load returns the histograms that have any operation, as Latency of package cache or server.
func Load[L ~struct {
	Operation, Transport string
	Nanoseconds          histogram.Counts
}](t *Table) (out []L) {
	for by := range t.all {
		for op := range t.all[by] {
			if h := t.all[by][op].Load(); h.Total() > 0 {
				out = append(out, L{opNames[op], transportNames[by], h})
			}
		}
	}
	return out
}
