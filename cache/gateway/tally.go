package gateway

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/cache/kv"
)

// counter is one of the counters of a gateway.
type counter int

const (
	getHits counter = iota
	getMisses
	touchHits
	touchMisses
	stores
	deleteHits
	deleteMisses
	incrHits
	incrMisses
	decrHits
	decrMisses
	casHits
	casMisses
	casMismatches
	flushes
	metas
	tooLarge
	noMemory
	passwords
	passwordErrors
	bytesRead
	bytesWritten
	accepted // connections, those included that were too many
	rejected
	idleKicks
	shortages // of descriptors for connections
	binaryRefused
	counters // how many there are
)

// tally is what one connection counts, to which no other one writes, or what the gateway counts beside them.
type tally [counters]atomic.Uint64

func (t *tally) add(c counter, n int) { t[c].Add(uint64(n)) }

// sums are the counters of several connections.
type sums [counters]uint64

func (s *sums) add(t *tally) {
	for i := range t {
		s[i] += t[i].Load()
	}
}

// since returns what was counted after s was before.
func (s sums) since(before *sums) sums {
	for i := range s {
		s[i] -= before[i]
	}
	return s
}

// count counts a request that the store has carried out.
func (t *tally) count(q *kv.Request, a *kv.Reply) {
	switch a.Status {
	case kv.OK, kv.NotFound, kv.NotStored, kv.Exists:
	case kv.TooLarge:
		t.add(tooLarge, 1)
		return
	case kv.NoMemory:
		t.add(noMemory, 1)
		return
	default:
		return
	}
	ok := a.Status == kv.OK
	switch q.Op {
	case kv.OpGet:
		hit, miss := getHits, getMisses
		if q.Want&kv.WantTouch != 0 {
			hit, miss = touchHits, touchMisses
		}
		t.either(ok, hit, miss)
	case kv.OpDelete:
		if !ok || q.Want&kv.WantStale == 0 {
			t.either(ok, deleteHits, deleteMisses)
		}
	case kv.OpArith:
		hit, miss := incrHits, incrMisses
		if q.Want&kv.WantDecr != 0 {
			hit, miss = decrHits, decrMisses
		}
		if a.Status == kv.NotFound || ok && a.Bits&kv.ReplyCreated == 0 {
			t.either(ok, hit, miss)
		}
	case kv.OpFlush:
		t.add(flushes, 1)
	default:
		t.add(stores, 1)
		switch {
		case q.Want&kv.WantCompare == 0:
		case a.Status == kv.Exists:
			t.add(casMismatches, 1)
		default:
			t.either(ok, casHits, casMisses)
		}
	}
}

func (t *tally) either(ok bool, hit, miss counter) {
	if ok {
		t.add(hit, 1)
	} else {
		t.add(miss, 1)
	}
}

// baseline is what there was at the last stats reset.
type baseline struct {
	sums
	store  map[string]uint64
	ranges map[int]kv.Events
}
