package machine

import (
	"errors"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// seenRecord is what a client's agent told of a record.
type seenRecord struct{ version, value uint64 }

// caller is the name under which a client's process sends chains to the agent.
func (c *simClient) caller() uint64 {
	id := uint64(c.id+1)<<16 | uint64(c.tags.Epoch)
	if _, known := c.s.agent.core.ByID[id]; !known {
		c.s.agent.clients = append(c.s.agent.clients, id)
		c.s.agent.attach(id)
	}
	return id
}

// chain has the agent read a record, or read and change it, or change it if it
// has the version that was seen last.
func (c *simClient) chain(slot, record int) {
	s, at := c.s, slot*c.s.l.Records+record
	what := s.rng.IntN(3)
	seen, known := c.seen[at]
	if what == 2 && !known {
		what = 1
	}
	if what == 0 {
		c.ask(slot, true, nil, []wire.Access{{Kind: wire.AccessRead, Record: uint16(record)}}, func(r wire.ChainReply, call int64) {
			if r.Ops.N == 0 {
				return
			}
			got := r.Ops.Next()
			c.learn(at, got.Version, value(got.Data))
			s.log(c.id, call, historyOp{Record: at, Old: value(got.Data)})
		})
		return
	}
	v := s.newValue()
	write := wire.Access{Kind: wire.AccessWrite, Record: uint16(record), Data: s.data(v)}
	first := wire.Access{Kind: wire.AccessRead, Record: uint16(record)}
	if what == 2 {
		first = wire.Access{Kind: wire.AccessCompare, Record: uint16(record), Version: seen.version}
	}
	unknown := func(call int64) {
		s.log(c.id+1000, call, historyOp{Record: at, Update: true, Blind: what == 1, Unknown: true, Old: seen.value, New: v})
	}
	c.ask(slot, false, unknown, []wire.Access{first, write}, func(r wire.ChainReply, call int64) {
		if r.Ops.N == 0 {
			return
		}
		got := r.Ops.Next()
		old := value(got.Data)
		if what == 2 {
			old = seen.value
		}
		delete(c.seen, at)
		if r.Status == wire.ChainDone {
			c.learn(at, got.Version+1, v)
			s.log(c.id, call, historyOp{Record: at, Update: true, Old: old, New: v})
		}
	})
}

func (c *simClient) learn(at int, version, v uint64) {
	if c.seen == nil {
		c.seen = map[int]seenRecord{}
	}
	c.seen[at] = seenRecord{version, v}
}

// ask sends a chain and waits for its reply. done hears of one that was
// executed, or not; unknown is called in the end when it may have been and the
// client never learned of it.
func (c *simClient) ask(slot int, shared bool, unknown func(int64), accesses []wire.Access, done func(wire.ChainReply, int64)) {
	s, call, id := c.s, c.s.tick(), c.caller()
	c.seq++
	r := wire.ChainRequest{Client: id, Seq: c.seq, Slot: uint32(slot), Shared: shared, Tries: uint32(s.rng.IntN(5)), Deadline: uint32(s.rng.IntN(300)), Agent: s.agent.identity(id)}
	b := r.AppendTo(nil)
	for _, a := range accesses {
		b = wire.AppendAccess(b, a)
	}
	settled := unknown == nil
	if !s.quiet {
		c.unknown = append(c.unknown, func() {
			if !settled {
				unknown(call)
			}
		})
	}
	c.waiting = true
	s.agent.call(&simCall{client: id, seq: c.seq, body: wire.SealMessage(b, len(accesses)), answered: func(r wire.ChainReply) {
		c.waiting = false
		switch r.Status {
		case wire.ChainDone, wire.ChainDiffers:
			settled = true
			done(r, call)
		case wire.ChainNotAcquired, wire.ChainBusy:
			settled = true
			done(r, call)
		case wire.ChainUnknown: // by another agent: see check
		default:
			settled = true
			s.fail("chain: status %d", r.Status)
		}
	}})
}

// inTurn waits until the agent says that it is the client's turn at a lock. then gets the
// word that is reserved, and what ends the turn.
func (c *simClient) inTurn(slot int, then func(word uint64, end func())) {
	epoch := c.tags.Epoch
	asked := c.seq + 1
	c.waiting = true
	c.askTurn(slot, func(r wire.ChainReply) {
		c.waiting = false
		end := func() {
			if !c.killed && c.tags.Epoch == epoch {
				c.endTurn(slot, asked)
			}
		}
		switch r.Status {
		case wire.ChainDone:
			then(r.Ops.Next().Version, end)
		case wire.ChainUnknown, wire.ChainNotAcquired:
		default:
			c.s.fail("turn: status %d", r.Status)
		}
	})
	if c.s.rng.IntN(20) == 0 { // and gives up
		c.waiting = false
		c.s.agent.forgetCall(c.caller(), asked)
		c.endTurn(slot, asked)
	}
}

func (c *simClient) askTurn(slot int, answered func(wire.ChainReply)) {
	id, body := c.turnRequest(slot, 0)
	c.s.agent.call(&simCall{client: id, seq: c.seq, body: body, answered: answered})
}

// endTurn says that a turn is over, which may get lost.
func (c *simClient) endTurn(slot int, of uint64) {
	id, body := c.turnRequest(slot, of)
	c.s.agent.requests = append(c.s.agent.requests, simMessage{id, body})
}

func (c *simClient) turnRequest(slot int, of uint64) (client uint64, body []byte) {
	id := c.caller()
	c.seq++
	return id, wire.AppendTurn(nil, id, c.seq, uint32(slot), c.s.agent.identity(id), of)
}

// swapped is what a client knows of a slot's pointer.
type swapped struct {
	pointer uint64
	known   bool
}

// swap reads a slot's private copy, and perhaps moves the pointer to a new one.
func (c *simClient) swap(slot int) {
	c.swapThen(slot, func(old uint64) {
		if c.s.rng.IntN(3) > 0 {
			c.swapWrite(slot, old, c.s.newValue(), func(error, bool) {})
		}
	})
}

// swapThen reads a slot's private copy.
func (c *simClient) swapThen(slot int, then func(old uint64)) {
	s, call, at := c.s, c.s.tick(), c.s.l.Slots*c.s.l.Records+slot
	if c.pointers == nil {
		c.pointers = map[int]swapped{}
	}
	pointers := c.pointers
	known := pointers[slot]
	r := &SwapReader{SwapLook: SwapLook{Slot: slot, Pointer: known.pointer, Known: known.known}}
	c.start(r, func(err error) {
		if err != nil {
			delete(pointers, slot)
			if !errors.Is(err, ErrNotAcquired) {
				s.fail("swap read: %w", err)
			}
			return
		}
		pointers[slot] = swapped{r.Pointer, r.Known}
		old := value(r.Data)
		s.log(c.id, call, historyOp{Record: at, Old: old})
		then(old)
	})
}

// swapWrite moves the pointer if it is where this client saw it. unknown is true if the
// outcome is not known.
func (c *simClient) swapWrite(slot int, old, v uint64, ended func(err error, unknown bool)) {
	s, call, at := c.s, c.s.tick(), c.s.l.Slots*c.s.l.Records+slot
	pointers := c.pointers
	p := pointers[slot]
	w := &SwapWriter{SwapLook: SwapLook{Slot: slot, Pointer: p.pointer, Known: p.known}, Owner: c.tags.Owner, Version: PointerVersion(p.pointer), Data: s.data(v)}
	settled := false
	if !s.quiet {
		c.unknown = append(c.unknown, func() {
			if !settled {
				s.log(c.id+1000, call, historyOp{Record: at, Update: true, Unknown: true, Old: old, New: v})
			}
		})
	}
	c.start(w, func(err error) {
		if w.Posted { // and given up
			delete(pointers, slot)
			ended(err, true)
			return
		}
		settled = true
		pointers[slot] = swapped{w.Pointer, w.Known}
		switch {
		case err == nil:
			s.log(c.id, call, historyOp{Record: at, Update: true, Old: old, New: v})
		case !errors.Is(err, ErrVersionMismatch) && !errors.Is(err, ErrNotAcquired):
			s.fail("swap write: %w", err)
		}
		ended(err, false)
	})
}

// readsOf reads records, in this order.
func readsOf(records ...int) (accesses []Access) {
	for _, n := range records {
		accesses = append(accesses, Access{Kind: wire.AccessRead, Record: n})
	}
	return accesses
}

// changer is a chain whose second step is made as its client does. Change may be nil.
type changer struct {
	Chain
	Change  func([]Access) error
	Allowed func() error
}

func (m *changer) Step() (Verdict, error) {
	v, err := m.Acquire.Step()
	if v != Done || err != nil {
		return v, err
	}
	err = m.Look()
	if err == nil && m.Change != nil {
		m.View()
		err = m.Change(m.Accesses)
	}
	if err = m.End(err); err == nil {
		if err = m.Allowed(); err != nil {
			m.Revoke()
		}
	}
	return Last, err
}

// load reads a slot under its lock; deliver gets what is valid until it returns.
func (c *simClient) load(slot int, deliver func(memory.Current) error, next func(error)) {
	m := &Once{Work: Work{L: c.s.l}}
	m.Load(slot)
	c.start(m, func(err error) {
		var cur memory.Current
		if err == nil {
			cur, err = m.Decode()
		}
		if err == nil {
			err = deliver(cur)
		}
		next(err)
	})
}

// update is a chain that has change make new data of the records' old data.
func update(lock Acquire, records []int, allowed func() error, change func(old [][]byte) ([][]byte, error)) *changer {
	m := &changer{Chain: Chain{Acquire: lock, Accesses: readsOf(records...)}, Allowed: allowed}
	for _, n := range records {
		m.Accesses = append(m.Accesses, Access{Kind: wire.AccessWrite, Record: n})
	}
	m.Change = func(a []Access) error {
		var old [][]byte
		for i := range records {
			old = append(old, a[i].Data)
		}
		data, err := change(old)
		for i := range data {
			a[len(records)+i].Data = data[i]
		}
		return err
	}
	return m
}
