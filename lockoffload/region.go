package lockoffload

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
)

// Region is a target's registered memory with lock words and records.
type Region struct {
	Layout
	l  memory.Layout // the same
	mr *verbs.MR

	generation uint64
	opens      time.Time // when clients are admitted, known to its first server
	relied     time.Time // until when clients of earlier servers may rely on locks
}

// NewRegion lays out the start of mr: all locks free, all records empty. mr needs
// [Layout.Bytes], remote READ, WRITE and atomic access, and an address that is a multiple
// of 8, as memory of [verbs.PD.AllocMR] has: a device's atomics need aligned words. It must
// not have [verbs.RelaxedOrder], with which an unlock command could overtake the WRITE before it.
// NewRegion writes with the CPU, so no peer may know the memory yet; afterwards the program
// must change it by RDMA only. The caller must close mr, after the server and the agent.
//
// Versions and fencing tokens begin at the microseconds since 1970. So they are higher
// than those of all earlier regions, also before the program was started anew, if the
// clock has not been set back by more than the pause between the two, and no slot has
// changed more than a million times a second on average.
func NewRegion(mr *verbs.MR, l Layout) (*Region, error) {
	l = l.withDefaults()
	if err := l.check(); err != nil {
		return nil, err
	}
	if mr.Len() < l.Bytes() {
		return nil, fmt.Errorf("lockoffload: region of %d bytes, layout needs %d: %w", mr.Len(), l.Bytes(), ErrConfig)
	}
	if mr.Access()&verbs.RelaxedOrder != 0 {
		return nil, fmt.Errorf("lockoffload: region with relaxed ordering: an unlock command could overtake the WRITE before it: %w", ErrConfig)
	}
	if mr.Region().Addr%8 != 0 {
		return nil, fmt.Errorf("lockoffload: region at address %#x: atomics need words of 8 bytes that are aligned: %w", mr.Region().Addr, ErrConfig)
	}
	if owned(mr.Bytes()) {
		return nil, fmt.Errorf("lockoffload: the memory has a region that is served: %w", ErrConfig)
	}
	r := &Region{Layout: l, l: memory.Layout(l), mr: mr, generation: rand.Uint64()}
	r.l.Format(mr.Bytes(), uint64(time.Now().UnixMicro()))
	return r, nil
}

// opensAfter returns when clients are admitted to the region: after a pause since its
// first server was made. A later server took the region over from that one.
func (r *Region) opensAfter(pause time.Duration) time.Time {
	if r.opens.IsZero() {
		r.opens = time.Now().Add(pause)
	}
	return r.opens
}

// Remote returns the address and the rkey with which peers reach the region.
func (r *Region) Remote() verbs.Region { return r.mr.Region() }
