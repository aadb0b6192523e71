package gateway

import "github.com/goverbs/goverbs/cache/kv"

// request returns the connection's request, of a key of a line. It is good until the next one.
func (c *conn) request(op kv.Op, key string) *kv.Request {
	c.key = append(c.key[:0], key...)
	c.q = kv.Request{Op: op, Key: c.key}
	return &c.q
}

// do asks the store, and counts that. The reply's value is good until the next request.
func (c *conn) do(q *kv.Request) kv.Reply {
	a := c.ask(q)
	c.n.count(q, &a)
	if d := &c.s.details; d.on.Load() {
		d.count(q, &a)
	}
	return a
}

// ask asks the store. After an error the reply is empty, which failure makes a server error.
func (c *conn) ask(q *kv.Request) kv.Reply {
	if c.long && c.value == nil && q.Op == kv.OpGet {
		c.value = borrow()
	}
	q.Into = c.value[:0]
	a, err := c.s.cfg.Store.Do(c.s.ctx, q)
	if err != nil {
		return kv.Reply{}
	}
	c.long = len(a.Value) > keep
	if cap(a.Value) > cap(c.value) {
		c.value = a.Value
	}
	return a
}

// drop deletes a record: what was there before must not pass for what was not stored.
func (c *conn) drop(key []byte) {
	c.q = kv.Request{Op: kv.OpDelete, Key: key}
	c.ask(&c.q)
}

// failure returns the text of outcomes that all commands have in common.
func failure(s kv.Status) string {
	switch s {
	case kv.NoMemory:
		return "SERVER_ERROR out of memory storing object"
	case kv.TooLarge:
		return "SERVER_ERROR object too large for cache"
	}
	return "SERVER_ERROR the store did not answer"
}

const notNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value"

// joins reports whether op adds a value to the one that is there.
func joins(op kv.Op) bool { return op == kv.OpAppend || op == kv.OpPrepend }

// tooLarge reports whether memcached would find an item too large: it counts a header of 56
// bytes, the key and a zero, the flags if there are any, the value and the end of its line.
func (c *conn) tooLarge(key string, flags uint32, n int) bool {
	size := 56 + len(key) + 1 + n + 2
	if flags != 0 {
		size += 4
	}
	return size > c.s.cfg.MaxItem
}
