// Package lrutest has the cache that tests compare hit rates with.
package lrutest

import "container/list"

// LRU is a cache of plain LRU, by bytes. It is not for several goroutines.
type LRU struct {
	by          map[uint64]*list.Element
	order       list.List
	bytes, room int
}

type stored struct {
	key  uint64
	size int
}

// New returns an empty cache for records of room bytes together.
func New(room int) *LRU { return &LRU{by: make(map[uint64]*list.Element), room: room} }

// Get reports whether a key is stored, and stores it if it is not.
func (c *LRU) Get(key uint64, size int) bool {
	if e := c.by[key]; e != nil {
		c.order.MoveToFront(e)
		return true
	}
	c.by[key] = c.order.PushFront(stored{key, size})
	for c.bytes += size; c.bytes > c.room; {
		gone := c.order.Remove(c.order.Back()).(stored)
		c.bytes -= gone.size
		delete(c.by, gone.key)
	}
	return false
}
