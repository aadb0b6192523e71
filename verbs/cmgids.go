package verbs

import "sync"

// gidCache remembers where addresses were found in the GID table, so that each
// connection does not read it again. It forgets everything when the device says
// that the table has changed. An entry may be out of date for the moment until
// that event is taken; the connection manager's kernel part, which has the last
// word on the index that a connection uses, is not.
type gidCache struct {
	mu    sync.Mutex
	found map[GIDQuery]GIDEntry
}

// find is [Device.FindGID] for queries without a Type.
func (c *gidCache) find(d *Device, q GIDQuery) (GIDEntry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.found[q]; ok {
		return e, nil
	}
	e, err := d.FindGID(q)
	if err != nil {
		return e, err
	}
	if c.found == nil {
		c.found = make(map[GIDQuery]GIDEntry)
	}
	c.found[q] = e
	return e, nil
}

// follow forgets what an event of the device may have changed.
func (c *gidCache) follow(ev Event) {
	switch ev.Type {
	case EventPortActive, EventPortError, EventGIDChange, EventDeviceFatal:
		c.mu.Lock()
		defer c.mu.Unlock()
		clear(c.found)
	}
}
