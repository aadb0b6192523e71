package store

import (
	"errors"

	"github.com/goverbs/goverbs/cache/internal/mirror"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// simClient is a client with its mirror, the stream to it, and one operation at a time.
type simClient struct {
	w       *world
	id      uint64
	m       *mirror.Mirror
	skew    int64  // of its clock
	next    uint64 // delta of the stream
	pos     uint64 // of the snapshot
	snap    bool
	alone   bool  // it has no map
	stream  int64 // when the last message arrives
	life    int   // of the connection
	reads   []*read
	pending func() // writes down the operation under way, since its end will not be seen
}

func (c *simClient) local() int64 { return c.w.now + c.skew }

// connect begins a connection with a snapshot.
func (c *simClient) connect() {
	w := c.w
	c.life++
	c.reads = nil
	c.m = mirror.New(mirror.Config{Budget: w.budget, SampleEvery: 4})
	c.alone = w.probing
	if !w.unattached {
		w.s.Attach(c.id, uint64(w.now))
	}
	c.snapshot()
}

// cut is what the server does to a client that is late.
func (c *simClient) cut() {
	for _, r := range c.reads {
		r.dead = true
	}
	c.connect()
}

func (c *simClient) snapshot() {
	b := c.w.s.Begin(uint64(c.w.now))
	b.Alone = c.alone
	c.next, c.pos, c.snap = b.Seq+1, 0, !c.alone
	c.send(wire.AppendMap(nil, &b))
}

// pump is the server's end of the stream.
func (c *simClient) pump() {
	if c.w.switching && c.w.rng.IntN(40) == 0 {
		c.alone = !c.alone
		c.snapshot()
		return
	}
	if c.alone {
		if c.w.rng.IntN(8) == 0 {
			c.snapshot()
		}
		return
	}
	var d wire.Deltas
	if !c.w.s.Deltas(uint64(c.w.now), c.next, wire.MaxEntries, &d) {
		c.snapshot()
		return
	}
	c.next += uint64(len(d.List))
	c.send(wire.AppendDeltas(nil, &d))
	if c.snap && c.w.rng.IntN(2) == 0 {
		var k wire.Chunk
		c.pos = c.w.s.Chunk(uint64(c.w.now), c.pos, 20, &k)
		c.snap = !k.Last
		c.send(wire.AppendChunk(nil, &k))
	}
}

// send delivers a message later, in order; some get lost, as if the client were slow.
func (c *simClient) send(b []byte) {
	w, life := c.w, c.life
	if w.rng.IntN(200) == 0 {
		return
	}
	c.stream = max(c.stream, w.now+int64(w.rng.IntN(40)))
	w.after(int(c.stream-w.now), func() {
		if life == c.life {
			c.receive(b)
		}
	})
}

func (c *simClient) receive(b []byte) {
	h, err := wire.ReadHeader(b)
	must(err)
	switch h.Kind {
	case wire.KindMap:
		m, err := wire.ReadMap(b)
		must(err)
		c.m.Begin(&m)
	case wire.KindChunk:
		var k wire.Chunk
		must(k.Read(b))
		err = c.m.Chunk(&k)
	case wire.KindDeltas:
		var d wire.Deltas
		must(d.Read(b))
		err = c.m.Deltas(&d)
	}
	if errors.Is(err, mirror.ErrGap) {
		c.w.after(c.w.rng.IntN(5), c.snapshot)
	} else if err != nil {
		c.w.fail("stream: %v", err)
	}
}

// tell sends the horizon and a report, mostly.
func (c *simClient) tell() {
	w, life := c.w, c.life
	if w.rng.IntN(4) > 0 && c.m.Epoch() != 0 {
		h := c.m.Horizon()
		if w.early {
			h.Quiet = h.Applied
		}
		var r wire.Report
		c.m.Report(&r)
		w.after(w.rng.IntN(20), func() {
			if life != c.life {
				return
			}
			w.server(func() {
				w.s.Reported(&r)
				if err := w.s.Heard(c.id, h); err != nil && !w.unattached && !errors.Is(err, wire.Malformed) {
					w.fail("horizon: %v", err)
				}
			})
		})
	}
	pause := 10 + w.rng.IntN(20)
	if w.rng.IntN(40) == 0 {
		pause = 2 * simLease // it hangs: the server has to cut it off
	}
	w.after(pause, c.tell)
}

// call is a request that is executed later; its reply comes later still.
func (c *simClient) call(q wire.Request, done func(a wire.Reply)) {
	w, asked := c.w, c.local()
	w.after(w.rng.IntN(20), func() {
		w.server(func() {
			a := w.s.Do(uint64(w.now), &q)
			a.Value = append([]byte(nil), a.Value...)
			w.after(w.rng.IntN(20), func() {
				c.m.Replied(a.Clock, asked, c.local())
				done(a)
			})
		})
	})
}

func (c *simClient) giveUp() {
	if c.pending != nil {
		c.pending()
	}
	c.pending = nil
}

// work is one operation after the other.
func (c *simClient) work() {
	w := c.w
	key, call := w.rng.IntN(simKeys), w.stamp()
	finish := func(o simOp) {
		c.pending = nil
		o.key = key
		w.log(int(c.id), call, o)
		w.after(w.rng.IntN(10), c.work)
	}
	q := wire.Request{Request: kv.Request{Key: w.keys[key]}}
	switch n := w.rng.IntN(40); {
	case n < 27:
		c.get(key, finish)
		return
	case key == 0 && n < 38:
		q.Op, q.Want, q.Delta, q.Initial = kv.OpArith, kv.WantVivify, 1, 1
		c.pending = func() { w.unknown(c.id, call, simOp{key: key, add: true, unknown: true}) }
		c.call(q, func(a wire.Reply) {
			if a.Status == kv.OK {
				finish(simOp{add: true, value: a.Number})
			} else {
				c.nothing(a.Status, finish, c.work)
			}
		})
	case n < 34:
		w.values++
		q.Op, q.Value = kv.OpSet, encode(key, w.values)
		if w.rng.IntN(3) == 0 {
			q.Expiry = int64(1 + w.rng.IntN(60))
		}
		v := w.values
		c.pending = func() { w.unknown(c.id, call, simOp{key: key, write: true, value: v}) }
		c.call(q, func(a wire.Reply) {
			if a.Status == kv.OK {
				finish(simOp{write: true, value: v})
			} else {
				c.nothing(a.Status, finish, c.work)
			}
		})
	case n < 36:
		q.Op, q.Want, q.Expiry = kv.OpGet, kv.WantTouch, int64(w.rng.IntN(100))
		c.call(q, func(a wire.Reply) { c.replied(key, a, finish) })
	case n < 39:
		q.Op = kv.OpDelete
		c.pending = func() { w.unknown(c.id, call, simOp{key: key, write: true}) }
		c.call(q, func(a wire.Reply) { finish(simOp{write: true}) })
	default:
		w.after(w.rng.IntN(20), func() {
			w.server(func() { w.s.Do(uint64(w.now), &wire.Request{Request: kv.Request{Op: kv.OpFlush}}) })
			c.flush(w.s.log.last, func() { finish(simOp{write: true}) })
		})
	}
}

// flush waits until a flush is over.
func (c *simClient) flush(seq uint64, over func()) {
	if c.w.flushed(seq) {
		c.w.after(c.w.rng.IntN(20), over)
		return
	}
	c.w.after(1, func() { c.flush(seq, over) })
}

// nothing is the end of a change that was refused.
func (c *simClient) nothing(status kv.Status, finish func(simOp), again func()) {
	c.pending = nil
	if status != kv.NoMemory {
		c.w.fail("status %d", status)
	}
	c.w.after(c.w.rng.IntN(10), again)
}

func (c *simClient) replied(key int, a wire.Reply, finish func(simOp)) {
	c.m.Learn(a.Entry, a.Seq)
	switch a.Status {
	case kv.OK:
		c.value(key, a.Value, finish)
	case kv.NotFound:
		finish(simOp{})
	default:
		c.nothing(a.Status, finish, c.work)
	}
}

func (c *simClient) value(key int, b []byte, finish func(simOp)) {
	v, ok := decode(key, b)
	if !ok {
		c.w.fail("torn: %d bytes of key %d: % x", len(b), key, b[:min(len(b), 80)])
	}
	finish(simOp{value: v})
}

func (c *simClient) ask(key int, finish func(simOp)) {
	c.call(wire.Request{Request: kv.Request{Op: kv.OpGet, Key: c.w.keys[key]}}, func(a wire.Reply) { c.replied(key, a, finish) })
}
