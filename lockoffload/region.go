package lockoffload

import (
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
)

// Region is a target's registered memory with lock words and records.
type Region struct {
	Layout
	l  memory.Layout // the same
	mr *verbs.MR
}

// NewRegion lays out the start of mr, which needs remote READ, WRITE and atomic
// access, and must not have [verbs.RelaxedOrder]: all locks free, all records empty with version 0. It writes with the
// CPU, so no peer may know the memory yet; afterwards the program must change
// it by RDMA only. The memory stays the caller's to close.
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
	r := &Region{Layout: l, l: memory.Layout(l), mr: mr}
	r.l.Format(mr.Bytes())
	return r, nil
}

// Remote is what peers need to reach the region.
func (r *Region) Remote() verbs.Region { return r.mr.Region() }
