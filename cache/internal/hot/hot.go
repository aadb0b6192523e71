// Package hot finds the keys that are asked for most, by the Space-Saving algorithm of
// Metwally, Agrawal and El Abbadi: of a stream of n accesses a key that has more than one in
// as many as there are counters is certain to have one, and no count is too high by more than
// that. It has no I/O, clocks or locks.
package hot

import (
	"cmp"
	"slices"
)

// counters is how many keys are counted at a time. A look at all of them for an access that
// was sampled is as good as free.
const counters = 64

// window is after how many accesses all counts are halved: what was hot yesterday is not today.
const window = 1 << 14

// Keys are those that are asked for most. The zero value has seen none.
type Keys struct {
	n     int
	all   [counters]Count
	total uint64
	since int // the counts were halved
}

// Count is how often a key was asked for, of late.
type Count struct {
	Fingerprint uint64
	Accesses    uint64 // at most
	Surplus     uint64 // by which that may be too high
}

// Access counts one.
func (k *Keys) Access(fingerprint uint64) {
	k.total++
	if k.since++; k.since == window {
		k.halve()
	}
	least := 0
	for i := range k.all[:k.n] {
		if k.all[i].Fingerprint == fingerprint {
			k.all[i].Accesses++
			return
		}
		if k.all[i].Accesses < k.all[least].Accesses {
			least = i
		}
	}
	if k.n < counters {
		k.all[k.n] = Count{fingerprint, 1, 0}
		k.n++
		return
	}
	// It may have been the one that was forgotten last: that had at most as many.
	had := k.all[least].Accesses
	k.all[least] = Count{fingerprint, had + 1, had}
}

func (k *Keys) halve() {
	k.since, k.total = 0, k.total/2
	for i := range k.all[:k.n] {
		k.all[i].Accesses /= 2
		k.all[i].Surplus /= 2
	}
}

// Top appends up to n keys that certainly have more than one access in as many as there are counters,
// the hottest first, and returns how many accesses there were in all, of late.
func (k *Keys) Top(n int, to []Count) (top []Count, total uint64) {
	for _, c := range k.all[:k.n] {
		if (c.Accesses-c.Surplus)*counters > k.total {
			to = append(to, c)
		}
	}
	slices.SortFunc(to, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Accesses-b.Surplus, a.Accesses-a.Surplus), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return to[:min(n, len(to))], k.total
}
