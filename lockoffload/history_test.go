package lockoffload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// regOp is one operation on the register that a record is.
type regOp struct {
	record  int // over all slots
	update  bool
	blind   bool // an update that did not read, or nobody knows what
	unknown bool
	old     uint64 // what was read
	new     uint64
}

// register is the model: a record is a register with read and
// read-modify-write. A change whose outcome nobody knows may have happened or
// not.
var register = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, o := range h {
			r := o.Input.(regOp).record
			by[r] = append(by[r], o)
		}
		var out [][]porcupine.Operation
		for _, p := range by {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		o := input.(regOp)
		switch {
		case o.blind:
			return true, o.new
		case o.unknown && state.(uint64) != o.old:
			return true, state // it never happened
		case state.(uint64) != o.old:
			return false, state
		case o.update:
			return true, o.new
		}
		return true, state
	},
}

func (s *sim) log(client int, call int64, o regOp) {
	if s.quiet {
		return
	}
	ret := s.tick()
	if o.unknown {
		ret = 1 << 60
	}
	s.ops = append(s.ops, porcupine.Operation{ClientId: client, Input: o, Call: call, Output: nil, Return: ret})
}

// data of a record: a value, repeated.
func (s *sim) data(v uint64) []byte {
	b := make([]byte, s.l.Size)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], v)
	}
	return b
}

func value(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func (s *sim) newValue() uint64 { s.values++; return s.values }

// fail notes what is wrong beside the history. With a flaw that is to be
// expected; the history must show it.
func (s *sim) fail(format string, args ...any) {
	if s.err == nil && !s.flaws.any() {
		s.err = fmt.Errorf(format, args...)
	}
}

func (c *simClient) anything() {
	s := c.s
	slot, records := s.rng.IntN(s.l.Slots), []int{s.rng.IntN(s.l.Records)}
	if s.l.Records > 1 && s.rng.IntN(3) == 0 {
		records = s.rng.Perm(s.l.Records)[:2]
	}
	switch s.rng.IntN(8) {
	case 0, 1:
		c.read(slot, records)
	case 2:
		c.update(slot, records, nil)
	case 3:
		c.update(slot, records, new(queue))
	case 4:
		c.shared(slot, records[:1])
	case 5, 6:
		c.chain(slot, records[0])
	case 7:
		c.swap(slot)
	}
}

func (c *simClient) read(slot int, records []int) {
	s, call := c.s, c.s.tick()
	m := &reader{acquire: acquire{tags: c.tags, records: records, reading: true}}
	m.grant.slot = slot
	got := make([]uint64, len(records))
	m.deliver = func(i int, cur current) error { got[i] = value(cur.data); return nil }
	if len(records) > 1 {
		m.form = FormReadHeld
	} else {
		m.mayShare = func() bool { return m.met || s.rng.IntN(3) == 0 }
	}
	var real machine = m
	if s.flaws.tornChain {
		real = &credulous{m}
	}
	c.start(real, len(records), func(err error) {
		if err != nil {
			if !errors.Is(err, ErrNotAcquired) {
				s.fail("read: %w", err)
			}
			return
		}
		for i, r := range records {
			s.log(c.id, call, regOp{record: slot*s.l.Records + r, old: got[i]})
		}
	})
}

func (c *simClient) update(slot int, records []int, q *queue) {
	s, call, id := c.s, c.s.tick(), c.id
	m := &updater{acquire: acquire{tags: c.tags, records: records, queue: q, token: true}, allowed: func() error { return nil }}
	m.grant.slot = slot
	var olds, news []uint64
	epoch := c.tags.epoch
	var settled bool
	m.change = func(old [][]byte) ([][]byte, error) {
		var data [][]byte
		if t := m.grant.token; t <= s.tokens[slot] {
			s.fail("token %d after %d", t, s.tokens[slot])
		} else {
			s.tokens[slot] = t
		}
		for _, b := range old {
			v := s.newValue()
			olds, news = append(olds, value(b)), append(news, v)
			data = append(data, s.data(v))
		}
		return data, nil
	}
	c.unknown = append(c.unknown, func() {
		if settled || olds == nil {
			return
		}
		for i, r := range records {
			s.log(id*1000+int(epoch)+1000, call, regOp{record: slot*s.l.Records + r, update: true, unknown: true, old: olds[i], new: news[i]})
		}
	})
	var real machine = m
	if s.flaws.blindWrite || s.flaws.blindReader {
		real = &blind{m, s.flaws}
	}
	c.start(real, len(records), func(err error) {
		settled = true
		if errors.Is(err, ErrNotAcquired) {
			return
		}
		if err != nil {
			s.fail("update: %w", err)
			if olds == nil {
				return
			}
		}
		for i, r := range records {
			s.log(id, call, regOp{record: slot*s.l.Records + r, update: true, old: olds[i], new: news[i]})
		}
	})
}

func (f flaws) any() bool { return f != flaws{} }

// shared takes the shared lock, reads twice, gives it back: nothing may change
// in between.
func (c *simClient) shared(slot int, records []int) {
	s := c.s
	m := &acquireShared{tags: c.tags}
	m.grant.slot = slot
	c.start(m, 1, func(err error) {
		if err != nil {
			if !errors.Is(err, ErrNotAcquired) {
				s.fail("shared: %w", err)
			}
			return
		}
		var got []uint64
		var again func(error)
		look := func() {
			a := &access{slot: slot, record: records[0], change: func(cur current) ([]byte, error) {
				got = append(got, value(cur.data))
				return nil, nil
			}}
			c.start(a, 1, again)
		}
		call := s.tick()
		again = func(err error) {
			switch {
			case err == nil:
				s.log(c.id, call, regOp{record: slot*s.l.Records + records[0], old: got[len(got)-1]})
				call = s.tick()
				if len(got) < 2 {
					look()
					return
				}
				if got[0] != got[1] {
					s.err = fmt.Errorf("%w: %d, then %d under the shared lock", errHistory, got[0], got[1])
				}
			case !errors.Is(err, ErrNotAcquired):
				s.fail("under the shared lock: %w", err)
				return
			}
			c.start(&releaser{grant: m.grant, owner: c.tags.owner}, 0, func(err error) {
				if err != nil {
					s.fail("release: %w", err)
				}
			})
		}
		look()
	})
}

// blind does not look at what the lock command, or the READ of the readers,
// has found.
type blind struct {
	*updater
	flaws flaws
}

func (b *blind) step() (verdict, error) {
	if b.flaws.blindWrite && b.state == acquireAsked {
		binary.NativeEndian.PutUint64(b.mem[b.ops[b.lock].at:], 0)
	}
	if b.flaws.blindReader {
		clear(b.mem[b.l.readersAt():][:b.l.readersSize()])
	}
	return b.updater.step()
}

// credulous takes the valid copy of a chain's record for the current one.
type credulous struct{ *reader }

func (m *credulous) step() (verdict, error) {
	if m.posted || m.form == FormSharedChain {
		for i := range m.records {
			pair := m.pair(i)
			half := len(pair) / 2
			cur, err := decodePair(pair)
			if err == nil && !cur.whole {
				copy(pair[(1-cur.which)*half:], pair[cur.which*half:][:half])
			}
		}
	}
	return m.reader.step()
}

var errHistory = errors.New("the history is not linearizable")

func history(seed uint64, f flaws, all *AgentStats) error {
	l := Layout{Slots: 1 + int(seed%2), Size: 16, Records: 1 + int(seed/2%2), Clients: 4, Swap: 8}
	s := newSim(seed, l, 2+int(seed%3), f)
	operation := (*simClient).anything
	switch { // what shows the flaw soonest
	case f.swapOneCopy:
		operation = func(c *simClient) { c.swap(s.rng.IntN(s.l.Slots)) }
	case f.anyAgent || f.forgetful:
		operation = func(c *simClient) { c.chain(s.rng.IntN(s.l.Slots), s.rng.IntN(s.l.Records)) }
	}
	if err := s.run(8, int(seed/4%4), operation); err != nil {
		return err
	}
	n := s.agent.core.stats
	all.Done, all.Differs, all.Busy, all.NotAcquired = all.Done+n.Done, all.Differs+n.Differs, all.Busy+n.Busy, all.NotAcquired+n.NotAcquired
	all.Repeated, all.Unknown, all.Carried = all.Repeated+n.Repeated, all.Unknown+n.Unknown, all.Carried+n.Carried
	return s.check()
}

// Histories of all forms together, of clients and agents that are killed, are
// linearizable.
func TestHistories(t *testing.T) {
	if lab.In() {
		t.Skip("needs no device, and much computing")
	}
	seeds := 400
	if !testing.Short() {
		seeds = 30000
	}
	var agents AgentStats
	for seed := range uint64(seeds) {
		if err := history(seed, flaws{}, &agents); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("agents: %+v", agents)
	for _, n := range []uint64{agents.Done, agents.Differs, agents.NotAcquired, agents.Repeated, agents.Unknown, agents.Carried, agents.Busy} {
		require.Positive(t, n, "something never happened")
	}
}

// The same check finds what is wrong when one of the rules is broken.
func TestHistoriesFindFlaws(t *testing.T) {
	if lab.In() {
		t.Skip("needs no device, and much computing")
	}
	for name, f := range map[string]flaws{
		"write without looking":     {blindWrite: true},
		"write under readers":       {blindReader: true},
		"no fence":                  {noFence: true},
		"one copy":                  {singleCopy: true},
		"chain with one valid copy": {tornChain: true},
		"swap to the current copy":  {swapOneCopy: true},
		"agent under readers":       {blindAgent: true},
		"agent without keys":        {forgetful: true},
		"agent for another":         {anyAgent: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100000) {
				if err := history(seed, f, new(AgentStats)); errors.Is(err, errHistory) {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("not found")
		})
	}
}

// No increment is lost, in a million of them over all forms, between clients
// that are killed now and then.
func TestCounter(t *testing.T) {
	if lab.In() {
		t.Skip("needs no device, and much computing")
	}
	total := 1_000_000
	if testing.Short() {
		total = 5_000
	}
	const clients = 4
	var counts [2]struct{ done, unknown uint64 } // in records, and in private copies
	s := newSim(1, Layout{Slots: 1, Size: 8, Clients: clients, Swap: 2 * clients}, clients, flaws{})
	s.quiet, s.agent.kills = true, max(total/1000, 40)
	err := s.run(total/clients*3/2, max(total/1000, 400), // callers give up now and then
		func(c *simClient) {
			if c.s.rng.IntN(4) == 0 {
				c.incrementSwap(&counts[1].done, &counts[1].unknown)
			} else {
				c.increment(&counts[0].done, &counts[0].unknown)
			}
		})
	require.NoError(t, err)
	cur, err := decodePair(s.mem[s.l.recordOff(0, 0):][:s.l.recordSize()])
	require.NoError(t, err)
	p := loadWord(s.mem, s.l.pointerOff(0))
	version, data, err := decode(s.mem[s.l.swapOff(0, pointerIndex(p)):][:s.l.copyStride()])
	require.NoError(t, err)
	require.Equal(t, pointerVersion(p), version)
	for i, c := range []struct{ version, value uint64 }{{cur.version, value(cur.data)}, {version, value(data)}} {
		n := counts[i]
		require.Equal(t, c.version, c.value)
		require.GreaterOrEqual(t, c.value, n.done)
		require.LessOrEqual(t, c.value, n.done+n.unknown)
		t.Logf("%d increments done, %d of unknown outcome, of which %d came through", n.done, n.unknown, c.value-n.done)
	}
	t.Logf("the last agent of %d: %+v", s.agent.lives, s.agent.core.stats)
	require.Greater(t, counts[0].done+counts[1].done, uint64(total))
}

// increment adds one, in one of the forms.
func (c *simClient) increment(done, unknown *uint64) {
	plusOne := func(old []byte) []byte { return binary.LittleEndian.AppendUint64(nil, value(old)+1) }
	// What was begun counts as unknown until its outcome is known.
	ended := func(err error) {
		*unknown--
		switch {
		case err == nil:
			*done++
		case !errors.Is(err, ErrNotAcquired):
			c.s.fail("increment: %w", err)
		}
	}
	*unknown++
	if c.s.rng.IntN(4) == 0 {
		c.incrementChain(plusOne, ended)
		return
	}
	var q *queue
	if c.s.rng.IntN(2) == 0 {
		q = new(queue)
	}
	allowed := func() error { return nil }
	if c.s.rng.IntN(3) > 0 {
		m := &updater{acquire: acquire{tags: c.tags, records: []int{0}, queue: q}, allowed: allowed}
		m.change = func(old [][]byte) ([][]byte, error) { return [][]byte{plusOne(old[0])}, nil }
		c.start(m, 1, ended)
		return
	}
	m := &acquire{tags: c.tags, queue: q}
	c.start(m, 1, func(err error) {
		if err != nil {
			ended(err)
			return
		}
		a := &access{allowed: allowed, change: func(cur current) ([]byte, error) { return plusOne(cur.data), nil }}
		c.start(a, 1, func(err error) {
			if a.wrote {
				err = nil // its caller may give up, the WRITE is through
			}
			c.start(&releaser{grant: m.grant, owner: c.tags.owner}, 0, func(lost error) { ended(errors.Join(err, lost)) })
		})
	})
}

// incrementChain has the agent do it.
func (c *simClient) incrementChain(plusOne func([]byte) []byte, ended func(error)) {
	c.ask(0, true, nil, []wireAccess{{kind: accessRead}}, func(r chainReply, _ int64) {
		if r.status != chainDone {
			ended(ErrNotAcquired)
			return
		}
		old := r.ops.next()
		accesses := []wireAccess{{kind: accessCompare, version: old.version}, {kind: accessWrite, data: plusOne(old.data)}}
		c.ask(0, false, nil, accesses, func(r chainReply, _ int64) {
			if r.status != chainDone {
				ended(ErrNotAcquired)
				return
			}
			ended(nil)
		})
	})
}

// incrementSwap adds one in the slot's private copies.
func (c *simClient) incrementSwap(done, unknown *uint64) {
	c.swapThen(0, func(old uint64) {
		*unknown++
		c.swapWrite(0, old, old+1, func(err error, nobodyKnows bool) {
			if nobodyKnows {
				return
			}
			*unknown--
			if err == nil {
				*done++
			}
		})
	})
}
