package cluster

import "time"

// SetPatience sets for how long changes of a shard wait for its next owner.
func (c *Config) SetPatience(d time.Duration) { c.patience = d }
