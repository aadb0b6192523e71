package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// sim runs machines of many clients against plain memory, one memory access at
// a time, chosen at random. It is meaner than devices are: READs and WRITEs go
// word by word in any order, a READ may come behind all later requests of its
// list, and lists of a killed client go on until its queue pair is fenced.
type sim struct {
	rng     *rand.Rand
	l       memory.Layout
	mem     []byte
	flaws   flaws
	clients []*simClient
	agent   *simAgent
	late    []*simList // of wires that are not fenced
	// What a queue pair was writing when it was reset is still on its way to memory,
	// until something is read through the device.
	bus    []*simList
	now    int64
	ops    []porcupine.Operation
	values uint64
	tokens map[int]uint64 // of the last holder of each slot
	err    error
	quiet  bool // keep no history
}

// flaws break the rules on purpose.
type flaws struct {
	blindWrite bool // WRITEs are posted without looking at the lock command's reply
	noDrain    bool // recovery does not wait for WRITEs on the bus
	noFence    bool // recovery does not fence the queue pair first
	singleCopy bool // WRITEs go to the current copy
	tornRead   bool // reads content themselves with one valid copy
	// writesAtOnce: holders write more than once under their lock.
	writesAtOnce bool
	blindReader  bool // writers do not look at the readers
	swapOneCopy  bool // a pointer's copy is written again while it is current
	blindAgent   bool // the agent does not look at the readers
	forgetful    bool // the agent executes each copy of a chain
	anyAgent     bool // it executes chains that were made for the one before
}

// simWire is a queue pair: lists on their way, in order.
type simWire struct {
	lists []*simList
}

// simList executes requests in order, but READs at any time after their turn.
type simList struct {
	w     *Work
	ops   []Op
	at    int        // of the request in turn
	then  func()     // called when all of it is executed, unless the process is dead
	late  []*access8 // READs under way
	write *access8
	// target: it goes through the target's own queue pair
	target bool
}

// access8 moves data word by word, in random order.
type access8 struct {
	o     Op
	words []int
}

func (s *sim) words(o Op) *access8 {
	return &access8{o, s.rng.Perm((o.N + 7) / 8)}
}

func (s *sim) word(a *access8, mem []byte) {
	i := a.words[0] * 8
	a.words = a.words[1:]
	n := min(8, a.o.N-i)
	if a.o.Kind == OpRead {
		copy(mem[a.o.At+i:][:n], s.mem[a.o.Off+i:])
	} else {
		copy(s.mem[a.o.Off+i:][:n], mem[a.o.At+i:])
	}
}

// step executes one memory access of the list and reports whether it is done.
func (s *sim) execute(x *simList) bool {
	if x.write != nil {
		s.word(x.write, x.w.Mem)
		if len(x.write.words) == 0 {
			x.write = nil
			x.at++
		}
		return x.finished()
	}
	if len(x.late) > 0 && (x.at == len(x.ops) || s.rng.IntN(3) > 0) {
		i := s.rng.IntN(len(x.late))
		s.word(x.late[i], x.w.Mem)
		if len(x.late[i].words) == 0 {
			x.late = slices.Delete(x.late, i, i+1)
		}
		return x.finished()
	}
	o := x.ops[x.at]
	switch o.Kind {
	case OpRead:
		if x.target {
			s.drain()
		}
		x.late = append(x.late, s.words(o))
		x.at++
	case OpWrite:
		x.write = s.words(o)
	default:
		old := memory.LoadWord(s.mem, o.Off)
		v := old + o.A
		if o.Kind == OpCmpSwap {
			v = old
			if old == o.A {
				v = o.B
			}
		}
		binary.NativeEndian.PutUint64(s.mem[o.Off:], v)
		binary.NativeEndian.PutUint64(x.w.Mem[o.At:], old)
		x.at++
	}
	return x.finished()
}

func (x *simList) finished() bool { return x.at == len(x.ops) && len(x.late) == 0 }

// simClient is one process with one queue pair.
type simClient struct {
	s      *sim
	id     int
	tags   *memory.Tagger
	wire   simWire
	killed bool
	fenced bool
	left   int // operations to do
	rec    *Recovery
	rlist  *simList
	with   []*simClient // that it recovers too

	m         Machine
	waiting   bool
	stalled   int
	pauses    int
	operation func(*simClient) // starts one
	undone    bool
	next      func(err error)
	unknown   []func()

	seq      uint64 // of chains
	seen     map[int]seenRecord
	pointers map[int]swapped
}

func (c *simClient) start(m Machine, next func(error)) {
	w := m.Base()
	w.L, w.Mem = c.s.l, make([]byte, c.s.l.LocalSize())
	c.m, c.next, c.undone = m, next, false
	c.advance()
}

func (c *simClient) post(then func()) {
	s, w := c.s, c.m.Base()
	x := &simList{w: w, ops: slices.Clone(w.Ops), then: then}
	for i, o := range x.ops {
		if o.Kind == OpWrite && s.flaws.singleCopy {
			slot := (o.Off - s.l.Table()) / s.l.SlotStride()
			if o.Off >= s.l.SwapOff(slot, 0) {
				continue
			}
			x.ops[i].Off = s.l.CopyOff(slot, 0)
		}
	}
	if m, ok := c.m.(*SwapWriter); ok && s.flaws.swapOneCopy && m.Posted {
		first := 2 * (int(m.Owner) - 1)
		m.moved = makePointer(first, PointerVersion(m.moved))
		x.ops[0].Off, x.ops[1].B = s.l.SwapOff(m.Slot, first), m.moved
	}
	c.wire.lists = append(c.wire.lists, x)
}

// advance steps the machine.
func (c *simClient) advance() {
	f := c.m.Step
	if c.undone {
		f = c.m.Undo
	}
	v, err := f()
	if c.undone && v == Done {
		err = ErrNotAcquired
	}
	switch v {
	case Post:
		c.waiting = true
		began := c.s.now
		c.post(func() {
			c.waiting = false
			c.m.Base().Took = time.Duration(c.s.now - began)
			c.undone = c.undone || c.s.rng.IntN(100) == 0
			c.advance()
		})
	case Sleep:
		c.pauses = 1 + c.s.rng.IntN(20)
		c.undone = c.s.rng.IntN(100) == 0 // its caller gives up
	case Last:
		// The next operation may begin without waiting for this list.
		m, next := c.m, c.next
		if c.undone {
			err = ErrNotAcquired
		}
		c.waiting = c.s.rng.IntN(2) == 0
		waited := c.waiting
		c.post(func() {
			if waited {
				c.waiting = false
			}
			if err == nil {
				err = m.Base().Settled()
			}
			next(err)
		})
		c.m = nil
	case Done:
		c.m = nil
		c.next(err)
	}
}

// turn lets the client do something and reports whether it did.
func (c *simClient) turn() bool {
	s := c.s
	if c.stalled > 0 {
		c.stalled--
		return true
	}
	if s.rng.IntN(25) == 0 {
		c.stalled = s.rng.IntN(150) // slow, or its packets are
	}
	if len(c.wire.lists) > 0 && (s.rng.IntN(8) > 0 || c.killed) {
		x := c.wire.lists[0]
		if s.execute(x) {
			c.wire.lists = c.wire.lists[1:]
			if !c.killed {
				x.then()
			}
		}
		return true
	}
	switch {
	case c.killed:
		return c.recover()
	case c.pauses > 0:
		c.pauses--
		if c.pauses == 0 {
			c.advance()
		}
		return true
	case !c.waiting && c.m == nil && c.left > 0:
		c.left--
		c.operation(c)
		return true
	}
	return len(c.wire.lists) > 0
}

// recover is what the target does with a dead client: fence, then take back.
func (c *simClient) recover() bool {
	s := c.s
	if !c.fenced {
		return true // not noticed yet: see kill
	}
	if c.rlist != nil {
		if s.execute(c.rlist) {
			c.rlist = nil
		}
		return true
	}
	if c.rec == nil {
		return true // another client's recovery has it
	}
	w := c.rec.Base()
	switch v, _ := c.rec.Step(); v {
	case Post:
		c.rlist = &simList{w: w, ops: slices.Clone(w.Ops), target: true}
		return true
	case Sleep:
		s.now += 2 * simReadTime
		return true
	}
	// The processes start again under another epoch.
	for _, o := range append(c.with, c) {
		o.killed, o.fenced = false, false
		o.tags = &memory.Tagger{Owner: o.tags.Owner, Epoch: o.tags.Epoch + 1}
	}
	c.rec, c.with = nil, nil
	return true
}

// kill stops the process; its lists go on.
func (c *simClient) kill() {
	c.killed, c.m, c.waiting, c.pauses = true, nil, false, 0
	c.seq, c.seen, c.pointers = 0, nil, nil
	c.s.agent.drop(uint64(c.id+1)<<16 | uint64(c.tags.Epoch))
}

// fence is what a queue pair in ERROR does: nothing more of it executes. Clients that
// are dead too may go with this one.
func (c *simClient) fence() {
	s := c.s
	dead := []*simClient{c}
	for _, o := range s.clients {
		if o != c && o.killed && !o.fenced && s.rng.IntN(2) == 0 {
			dead = append(dead, o)
		}
	}
	var sessions []Identity
	for _, o := range dead {
		if s.flaws.noFence {
			s.late = append(s.late, o.wire.lists...)
		} else if len(o.wire.lists) > 0 {
			// The rest of it, if it had arrived at all.
			if x := o.wire.lists[0]; x.write != nil && s.rng.IntN(2) == 0 {
				s.bus = append(s.bus, &simList{w: x.w, ops: x.ops[:x.at+1], at: x.at, write: x.write})
			}
		}
		o.wire.lists = nil
		o.fenced = true
		sessions = append(sessions, Identity{Owner: o.tags.Owner, Epoch: o.tags.Epoch})
	}
	c.with = dead[1:]
	c.rec = (&Recovery{Region: s.mem}).DeadSessions(&s.l, sessions...)
	c.rec.L, c.rec.Mem = s.l, make([]byte, s.l.LocalSize())
	if s.flaws.noDrain {
		c.rec.settled = true
	}
}

// drain is what a READ of the device does to WRITEs before it.
func (s *sim) drain() {
	for _, x := range s.bus {
		for !s.execute(x) {
		}
	}
	s.bus = nil
}

// simReadTime is how long a READ without a lock may take.
const simReadTime = 1 << 18

func (s *sim) tick() int64 { s.now++; return s.now }

// run is one history of clients that do so many operations each.
func (s *sim) run(each, kills int, operation func(*simClient)) error {
	for _, c := range s.clients {
		c.left, c.operation = each, operation
	}
	for steps := 0; ; steps++ {
		if steps > 50_000*each {
			return errors.New("no end: some client waits for ever")
		}
		if s.err != nil {
			return s.err
		}
		busy := false
		for range 3 {
			c := s.clients[s.rng.IntN(len(s.clients))]
			busy = c.turn() || busy
			switch {
			case kills > 0 && !c.killed && s.rng.IntN(200) == 0:
				kills--
				c.kill()
			case c.killed && !c.fenced && s.rng.IntN(30) == 0:
				c.fence()
			}
		}
		if err := s.agent.turn(); err != nil {
			return err
		}
		if len(s.bus) > 0 && s.rng.IntN(20) == 0 && s.execute(s.bus[0]) {
			s.bus = s.bus[1:]
		}
		if len(s.late) > 0 && s.rng.IntN(20) == 0 && s.execute(s.late[0]) {
			s.late = s.late[1:]
		}
		if !busy && s.idle() {
			return s.free()
		}
	}
}

// free looks whether nothing stayed locked at the end.
func (s *sim) free() error {
	for slot := range s.l.Slots {
		if v := memory.LoadWord(s.mem, s.l.LockOff(slot)); v != 0 && !s.flaws.any() {
			return fmt.Errorf("slot %d stays locked by %#x", slot, v)
		}
		if anyBits(s.mem[s.l.ReadersOff(slot):][:s.l.ReadersSize()]) && !s.flaws.any() {
			return fmt.Errorf("slot %d keeps readers", slot)
		}
	}
	return nil
}

// check looks at the history of a run.
func (s *sim) check() error {
	for _, c := range s.clients {
		for _, f := range c.unknown {
			f()
		}
	}
	for slot := range s.l.Slots { // each record has its last value
		cur, err := s.current(slot)
		if err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		for r := range s.l.Records {
			now, err := s.l.Record(&cur, r)
			if err != nil {
				return fmt.Errorf("slot %d record %d: %w", slot, r, err)
			}
			s.log(len(s.clients), s.tick(), historyOp{Record: slot*s.l.Records + r, Old: value(now.Data)})
		}
		p := memory.LoadWord(s.mem, s.l.PointerOff(slot))
		version, data, err := memory.Decode(s.mem[s.l.SwapOff(slot, pointerIndex(p)):][:s.l.SwapStride()])
		if err != nil || version != PointerVersion(p) {
			return fmt.Errorf("%w: slot %d: private copy of version %d for a pointer to %d, %v", errHistory, slot, version, PointerVersion(p), err)
		}
		s.log(len(s.clients), s.tick(), historyOp{Record: s.l.Slots*s.l.Records + slot, Old: value(data)})
	}
	switch res, _ := porcupine.CheckOperationsVerbose(historyModel, s.ops, 10*time.Second); res {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("porcupine gave up")
	}
	return errHistory
}

// current is what a slot has.
func (s *sim) current(slot int) (memory.Current, error) {
	return s.l.DecodePair(s.mem[s.l.PairOff(slot):][:s.l.PairSize()])
}

func (s *sim) idle() bool {
	for _, c := range s.clients {
		if len(c.wire.lists) > 0 || c.m != nil || c.left > 0 || c.killed {
			return false
		}
	}
	return len(s.late) == 0 && len(s.bus) == 0 && s.agent.idle()
}

// longAfter has epochs begin where their numbers come to an end.
func (s *sim) longAfter() {
	for _, c := range s.clients {
		c.tags.Epoch = 1<<16 - 1
	}
}

func newSim(seed uint64, l memory.Layout, clients int, f flaws) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 5)), l: l.WithDefaults(), flaws: f, tokens: map[int]uint64{}}
	s.mem = make([]byte, s.l.Bytes())
	s.l.Format(s.mem, 0)
	s.agent = newSimAgent(s, seed/3, int(seed%3))
	for i := range clients {
		s.clients = append(s.clients, &simClient{s: s, id: i, tags: &memory.Tagger{Owner: uint16(i + 1), Epoch: 1}})
	}
	return s
}
