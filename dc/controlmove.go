package dc

import (
	"iter"

	"github.com/goverbs/goverbs/verbs"
)

// follow drops what was made with an address that has changed, on this host or on the way.
func (c *Control) follow(changes iter.Seq2[verbs.GIDEntry, error]) {
	for now, err := range changes {
		if err != nil {
			c.log.Warn("dc: the local address is gone", "gid", c.gid.entry().GID, "err", err)
			continue
		}
		if c.gid.put(now) {
			c.moved()
		} else {
			c.handles.expire()
		}
	}
}

// moved: the local GID has another place in the GID table. Queue pairs and address handles
// that were made with the one before reach nothing any more. Handles keep that place from
// being used again, so they are closed at once, for which the sends that use them are
// given up.
func (c *Control) moved() {
	c.log.Info("dc: the local address has moved in the GID table", "gid", c.gid.entry())
	c.handles.expire()
	c.mu.Lock()
	generation := c.generation
	c.mu.Unlock()
	c.broken(generation)
	c.routing.RLock()
	users := []controlUser{c.rest}
	for _, u := range c.routes {
		users = append(users, u)
	}
	c.routing.RUnlock()
	for _, u := range users {
		if u.moved != nil {
			u.moved()
		}
	}
}
