package shaper

// Holder is a process that shares a threshold with others.
type Holder struct {
	Alive bool
	Wants bool  // it has requests
	Lease int64 // the part of the threshold that it may use, or still uses
}

// Share returns the lease of process me in a shared threshold: an equal part for each process
// that has requests, as far as the others have given theirs back; not less than its bytes
// outstanding, which only responses reduce. A process that died has nothing.
func Share(total int64, all []Holder, me int, wants bool, outstanding int64) int64 {
	busy, others := int64(0), int64(0)
	for i, h := range all {
		if i == me || !h.Alive {
			continue
		}
		others += h.Lease
		if h.Wants {
			busy++
		}
	}
	if !wants {
		return outstanding
	}
	return max(min(total/(busy+1), total-others), outstanding, 0)
}
