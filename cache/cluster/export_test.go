package cluster

import "time"

// SetPatience sets for how long changes of a shard wait for its next owner.
func (c *Config) SetPatience(d time.Duration) { c.patience = d }

// Stall has the member stand still, as SIGSTOP does, until resume is called. Its server goes on.
func (m *Member) Stall() (resume func()) {
	m.mu.Lock()
	return m.mu.Unlock
}
