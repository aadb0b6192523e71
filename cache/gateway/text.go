package gateway

import (
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

func (c *conn) get(t []string, how retrieval) error {
	var want uint32
	var expiry int64
	keys := t[1:]
	if how.touch {
		exp, ok := signed(t[1])
		if !ok {
			return c.say(badExptime)
		}
		want, expiry, keys = kv.WantTouch, until(exp), t[2:]
	}
	read := func(k string) kv.Reply {
		q := c.request(kv.OpGet, k)
		q.Want, q.Expiry = want, expiry
		return c.do(q)
	}
	for i, k := range keys {
		if len(k) > wire.MaxKey {
			for _, k := range keys[:i] { // they are read all the same, and leave their trace
				read(k)
			}
			return c.say(badFormat)
		}
	}
	for _, k := range keys {
		a := read(k)
		switch a.Status {
		case kv.OK:
			out := append(append(append(c.w.AvailableBuffer(), "VALUE "...), k...), ' ')
			out = append(strconv.AppendUint(out, uint64(a.Flags), 10), ' ')
			out = strconv.AppendInt(out, int64(len(a.Value)), 10)
			if how.cas {
				out = strconv.AppendUint(append(out, ' '), a.CAS, 10)
			}
			_ = c.write(out)
			if err := c.write(a.Value); err != nil {
				return err // the client has gone
			}
		case kv.NotFound:
		default:
			return c.say(failure(a.Status))
		}
	}
	return c.say("END")
}

// quiet sets c.noreply if the last token is noreply, and returns it.
func (c *conn) quiet(t []string) bool {
	c.noreply = c.noreply || t[len(t)-1] == "noreply"
	return c.noreply
}

func (c *conn) store(t []string, op kv.Op, want uint32) error {
	c.quiet(t)
	q := c.request(op, t[1])
	q.Want = want
	flags, ok1 := unsigned(t[2])
	exp, ok2 := signed(t[3])
	n, ok3 := signed(t[4])
	ok := ok1 && ok2 && ok3
	if want&kv.WantCompare != 0 && ok {
		q.CAS, ok = unsigned(t[5])
	}
	if !ok || n < 0 || n > 1<<31-3 || len(t[1]) > wire.MaxKey {
		return c.say(badFormat)
	}
	q.Flags, q.Expiry = uint32(flags), until(exp)
	if c.tooLarge(t[1], q.Flags, int(n)) {
		c.n.add(tooLarge, 1)
		if op == kv.OpSet && want == 0 {
			c.drop(q.Key)
		}
		if err := c.say(failure(kv.TooLarge)); err != nil {
			return err
		}
		return c.swallow(int(n) + 2)
	}
	whole, err := c.readData(int(n))
	if err != nil {
		return err
	}
	if !whole {
		return c.say("CLIENT_ERROR bad data chunk")
	}
	q.Value = c.data
	a := c.do(q)
	switch a.Status {
	case kv.NotStored:
		return c.say("NOT_STORED")
	case kv.TooLarge:
		if joins(op) { // of what both are together
			return c.say("NOT_STORED")
		}
		if op == kv.OpSet && want == 0 {
			c.drop(q.Key)
		}
	case kv.Exists:
		return c.say("EXISTS")
	}
	return c.outcome(a.Status, "STORED")
}

// outcome replies with what became of a command: done is the text for success.
func (c *conn) outcome(s kv.Status, done string) error {
	switch s {
	case kv.OK:
		return c.say(done)
	case kv.NotFound:
		return c.say("NOT_FOUND")
	}
	return c.say(failure(s))
}

const badExptime = "CLIENT_ERROR invalid exptime argument"

func (c *conn) count(t []string, want uint32) error {
	c.quiet(t)
	if len(t[1]) > wire.MaxKey {
		return c.say(badFormat)
	}
	delta, ok := unsigned(t[2])
	if !ok {
		return c.say("CLIENT_ERROR invalid numeric delta argument")
	}
	q := c.request(kv.OpArith, t[1])
	q.Want, q.Delta = want, delta
	a := c.do(q)
	if a.Status == kv.NotNumeric {
		return c.say(notNumeric)
	}
	return c.outcome(a.Status, u64(a.Number))
}

func (c *conn) delete(t []string) error {
	if len(t) > 2 {
		zero := t[2] == "0"
		quiet := c.quiet(t)
		if !(len(t) == 3 && (zero || quiet) || len(t) == 4 && zero && quiet) {
			return c.say(badFormat + ".  Usage: delete <key> [noreply]")
		}
	}
	if len(t[1]) > wire.MaxKey {
		return c.say(badFormat)
	}
	a := c.do(c.request(kv.OpDelete, t[1]))
	return c.outcome(a.Status, "DELETED")
}

func (c *conn) touch(t []string) error {
	c.quiet(t)
	if len(t[1]) > wire.MaxKey {
		return c.say(badFormat)
	}
	exp, ok := signed(t[2])
	if !ok {
		return c.say(badExptime)
	}
	q := c.request(kv.OpGet, t[1])
	q.Want, q.Expiry = kv.WantTouch|kv.WantNoValue, until(exp)
	a := c.do(q)
	return c.outcome(a.Status, "TOUCHED")
}

func (c *conn) flush(t []string) error {
	quiet := len(t) > 1 && c.quiet(t)
	q := kv.Request{Op: kv.OpFlush}
	if len(t) > 2 || len(t) == 2 && !quiet {
		exp, ok := signed(t[1])
		if !ok {
			return c.say(badExptime)
		}
		if exp > 0 {
			q.Want, q.Expiry = kv.WantIfLater, until(exp)
		}
	}
	a := c.do(&q)
	if a.Status != kv.OK {
		return c.say(failure(a.Status))
	}
	return c.say("OK")
}

func (c *conn) verbosity(t []string) error {
	c.quiet(t)
	if _, ok := unsigned(t[1]); !ok {
		return c.say(badFormat)
	}
	return c.say("OK")
}

func (c *conn) memlimit(t []string) error {
	c.quiet(t)
	if _, ok := unsigned(t[1]); !ok {
		return c.say("ERROR")
	}
	return c.say("MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust")
}
