package rdmacm

import (
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// gidCache remembers where addresses were found in the GID table, so that each
// connection does not read it again. It forgets everything when the device says
// that the table has changed. An entry may be out of date for the moment until
// that event is taken; the connection manager's kernel part, which has the last
// word on the index that a connection uses, is not.
type gidCache struct {
	mu    sync.Mutex
	found map[verbs.GIDQuery]verbs.GIDEntry
}

// find is [verbs.Device.LocalGID] for queries without a Type.
func (c *gidCache) find(d *verbs.Device, q verbs.GIDQuery) (verbs.GIDEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.found[q]; ok {
		return e, nil
	}
	e, err := d.LocalGID(q)
	if err != nil {
		return e, err
	}
	if c.found == nil {
		c.found = make(map[verbs.GIDQuery]verbs.GIDEntry)
	}
	c.found[q] = e
	return e, nil
}

// follow forgets what an event of the device may have changed.
func (c *gidCache) follow(ev verbs.Event) {
	switch ev.Type {
	case verbs.EventPortActive, verbs.EventPortError, verbs.EventGIDChange, verbs.EventDeviceFatal:
		c.mu.Lock()
		defer c.mu.Unlock()
		clear(c.found)
	}
}
