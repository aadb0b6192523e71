package engine

import "github.com/goverbs/goverbs/srd/internal/wire"

// Hosts counts the peers of each host: without a key a cookie shows only that a stranger has
// its address, and one host could have all peers. Few hosts share a counter, by a keyed hash
// of their addresses.
type Hosts struct {
	Secret wire.Key
	counts [1024]uint32
	Sweep  Sweep // for peers of one host
}

// Share returns how many of so many peers one host may have that greets without a key.
func (h *Hosts) Share(peers int) int { return max(16, peers/16) }

// Of returns the counter of a host.
func (h *Hosts) Of(gid [16]byte) *uint32 {
	s := wire.NewHash(h.Secret)
	s.Add(gid[:])
	return &h.counts[s.Sum()%uint64(len(h.counts))]
}
