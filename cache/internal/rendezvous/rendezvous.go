// Package rendezvous chooses a server for each key by rendezvous hashing: each server has
// a score for the key, and the highest one wins. A server that joins a list takes its
// share of the keys from all others, and one that leaves gives its keys to all others; no
// key moves otherwise. It has no I/O, clocks or locks.
//
// Clients have to agree, whatever their versions are: the scores are part of the format.
package rendezvous

import (
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
)

// ErrList: the list of servers is empty, or a name is empty or there twice.
var ErrList = errors.New("no list of servers")

// List is a list of servers. It does not change, so any number of goroutines may use it.
type List struct {
	names []string
	seeds []uint64 // hashes of the names
}

// New makes a list of names, which are different from each other. The order plays no part
// in what is chosen, the names do, byte by byte.
func New(names []string) (*List, error) {
	l := &List{}
	seen := map[string]bool{}
	for _, name := range names {
		if name == "" || seen[name] {
			return nil, fmt.Errorf("%w: %q is empty or there twice", ErrList, name)
		}
		seen[name] = true
		l.names, l.seeds = append(l.names, name), append(l.seeds, xxh3.HashString(name))
	}
	if len(l.names) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrList)
	}
	return l, nil
}

// Of returns the place in the list of the server that has a key. It allocates nothing.
func (l *List) Of(key []byte) int {
	h := xxh3.Hash(key)
	best, most := 0, score(l.seeds[0], h)
	for i := 1; i < len(l.seeds); i++ {
		s := score(l.seeds[i], h)
		if s > most || s == most && l.names[i] < l.names[best] {
			best, most = i, s
		}
	}
	return best
}

// score mixes the hashes of a name and a key. Each bit of either turns each bit of the
// score with a probability of a half (the finalizer of SplitMix64, which is a bijection,
// after a multiplication that keeps the XOR of two names from showing).
func score(name, key uint64) uint64 {
	x := name ^ key*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
