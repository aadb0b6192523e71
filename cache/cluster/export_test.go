package cluster

import (
	"maps"
	"slices"
	"time"
)

// SetPatience sets for how long changes of a shard wait for its next owner.
func (c *Config) SetPatience(d time.Duration) { c.patience = d }

// Stall has the member stand still, as SIGSTOP does, until resume is called. Its server goes on.
func (m *Member) Stall() (resume func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

// Peers returns the addresses of the servers of which the member has clients.
func (m *Member) Peers() []string {
	m.peers.mu.Lock()
	defer m.peers.mu.Unlock()
	return slices.Sorted(maps.Keys(m.peers.clients))
}

// Leaves reports whether Drain has begun.
func (m *Member) Leaves() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving
}
