package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

func (s *sim) log(client int, call int64, o historyOp) {
	if s.quiet {
		return
	}
	s.locate(&o)
	ret := s.tick()
	if o.Unknown {
		ret = 1 << 60
	}
	s.ops = append(s.ops, porcupine.Operation{ClientId: client, Input: o, Call: call, Output: nil, Return: ret})
}

// locate says in which slot an operation's records are.
func (s *sim) locate(o *historyOp) {
	o.Unit = o.Record
	if o.Record < s.l.Slots*s.l.Records {
		o.Unit, o.Place = -1-o.Record/s.l.Records, o.Record%s.l.Records
	}
	for i := range o.Others {
		s.locate(&o.Others[i])
	}
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
	switch s.rng.IntN(11) {
	case 3, 10:
		c.inTurn(slot, func(word uint64, end func()) { c.updateFrom(slot, records, word, end) })
	case 8, 9:
		c.held(slot, records)
	case 0, 1:
		c.read(slot, records)
	case 2:
		c.update(slot, records)
	case 4:
		c.shared(slot, records[:1])
	case 5, 6:
		c.chain(slot, records[0])
	case 7:
		if 2*int(c.tags.Owner) <= s.l.Swap {
			c.swap(slot)
		}
	}
}

// readOrUpdate is for histories that are all about reads beside writers.
func (c *simClient) readOrUpdate() {
	slot, records := c.s.rng.IntN(c.s.l.Slots), []int{0}
	if c.s.rng.IntN(2) == 0 {
		c.read(slot, records)
	} else {
		c.update(slot, records)
	}
}

func (c *simClient) read(slot int, records []int) {
	s, call := c.s, c.s.tick()
	m := &Reader{Acquire: Acquire{Tags: c.tags, Data: true, Reading: true}, Accesses: readsOf(records...), Protocol: Protocol(s.rng.IntN(3)), InTime: simReadTime}
	m.Grant.Slot = slot
	var real Machine = m
	if s.flaws.tornRead {
		real = &credulous{m}
	}
	c.start(real, func(err error) {
		if err != nil {
			if !errors.Is(err, ErrNotAcquired) {
				s.fail("read: %w", err)
			}
			return
		}
		got := make([]uint64, len(records))
		for i, a := range m.Accesses {
			got[i] = value(a.Data)
		}
		s.logAll(c.id, call, slot, records, historyOp{}, got, nil)
	})
}

func (c *simClient) update(slot int, records []int) {
	c.updateFrom(slot, records, 0, func() {})
}

// updateFrom is an update in a turn that the agent has given, which it ends.
func (c *simClient) updateFrom(slot int, records []int, from uint64, end func()) {
	s, call, id := c.s, c.s.tick(), c.id
	var m *changer
	var olds, news []uint64
	epoch := c.tags.Epoch
	var settled bool
	m = update(Acquire{Tags: c.tags, Data: true, Token: true, From: from}, records, func() error { return nil }, func(old [][]byte) ([][]byte, error) {
		var data [][]byte
		if t := m.Grant.Token; t <= s.tokens[slot] {
			s.fail("token %d after %d", t, s.tokens[slot])
		} else {
			s.tokens[slot] = t
		}
		if s.rng.IntN(12) == 0 {
			return nil, errChange
		}
		for _, b := range old {
			v := s.newValue()
			olds, news = append(olds, value(b)), append(news, v)
			data = append(data, s.data(v))
		}
		return data, nil
	})
	m.Grant.Slot = slot
	c.unknown = append(c.unknown, func() {
		if settled || olds == nil {
			return
		}
		s.logAll(id*1000+int(epoch)+1000, call, slot, records, historyOp{Update: true, Unknown: true}, olds, news)
	})
	var real Machine = m
	if s.flaws.blindWrite || s.flaws.blindReader {
		real = &blind{m, s.flaws}
	}
	c.start(real, func(err error) {
		settled = true
		end()
		if errors.Is(err, ErrNotAcquired) || errors.Is(err, errChange) || errors.Is(err, ErrTurnOver) {
			return
		}
		if err != nil {
			s.fail("update: %w", err)
			if olds == nil {
				return
			}
		}
		s.logAll(id, call, slot, records, historyOp{Update: true}, olds, news)
	})
}

// held takes the lock, loads, and writes what it changes with the unlock command. One
// with a flaw writes another value first, under the same lock.
func (c *simClient) held(slot int, records []int) {
	s, call, id := c.s, c.s.tick(), c.id
	m := &Acquire{Tags: c.tags, Grant: Grant{Slot: slot}}
	var old memory.Current
	var olds, news []uint64
	settled := false
	c.unknown = append(c.unknown, func() {
		if !settled && olds != nil {
			s.logAll(id+1000, call, slot, records, historyOp{Update: true, Unknown: true}, olds, news)
		}
	})
	release := func() {
		v := &stageAll{Releaser: Releaser{Grant: m.Grant, Owner: c.tags.Owner}, from: &old, records: records}
		for _, n := range news {
			v.data = append(v.data, s.data(n))
		}
		c.start(v, func(err error) {
			switch {
			case err == nil && olds != nil:
				s.logAll(id, call, slot, records, historyOp{Update: true}, olds, news)
			case err != nil && !errors.Is(err, ErrNotAcquired):
				s.fail("held: %w", err)
			}
			settled = err == nil
		})
	}
	c.start(m, func(err error) {
		if err != nil {
			return
		}
		c.load(slot, func(cur memory.Current) error {
			old = copyOf(&cur)
			for _, n := range records {
				r, err := s.l.Record(&old, n)
				if err != nil {
					return err
				}
				olds, news = append(olds, value(r.Data)), append(news, s.newValue())
			}
			return nil
		}, func(err error) {
			if err != nil || !s.flaws.writesAtOnce {
				release()
				return
			}
			first := &stageAll{Releaser: Releaser{}, from: &old, records: records, keep: true}
			first.Grant.Slot = slot
			for range records {
				first.data = append(first.data, s.data(s.newValue()))
			}
			c.start(first, func(error) { release() })
		})
	})
}

// stageAll is a releaser that stages its changes itself.
type stageAll struct {
	Releaser
	from    *memory.Current
	records []int
	data    [][]byte
	keep    bool // the lock
	wrote   bool
}

func (m *stageAll) Step() (Verdict, error) {
	if m.keep && m.wrote {
		return Done, nil
	}
	if len(m.data) > 0 {
		m.Old = m.from
		m.L.Stage(m.Next(), m.from)
		for i, n := range m.records {
			r, err := m.L.Record(m.from, n)
			if err != nil {
				return Done, err
			}
			m.L.Put(m.Next(), n, r.Version+1, m.data[i])
		}
	}
	if m.keep {
		m.wrote = true
		m.begin()
		m.writeSlot(m.Grant.Slot, m.Old)
		return Post, nil
	}
	return m.Releaser.Step()
}

// logAll notes an operation on records of a slot, which happens to all of them at one
// moment.
func (s *sim) logAll(client int, call int64, slot int, records []int, o historyOp, olds, news []uint64) {
	for i, r := range records {
		p := historyOp{Record: slot*s.l.Records + r, Old: olds[i]}
		if news != nil {
			p.New = news[i]
		}
		if i > 0 {
			o.Others = append(o.Others, p)
			continue
		}
		o.Record, o.Old, o.New = p.Record, p.Old, p.New
	}
	s.log(client, call, o)
}

func (f flaws) any() bool { return f != flaws{} }

// shared takes the shared lock, reads twice, gives it back: nothing may change
// in between.
func (c *simClient) shared(slot int, records []int) {
	s := c.s
	m := &AcquireShared{Acquire: Acquire{Tags: c.tags, Grant: Grant{Slot: slot}}}
	c.start(m, func(err error) {
		if err != nil {
			if !errors.Is(err, ErrNotAcquired) {
				s.fail("shared: %w", err)
			}
			return
		}
		var got []uint64
		var again func(error)
		look := func() {
			c.load(slot, func(cur memory.Current) error {
				r, err := s.l.Record(&cur, records[0])
				got = append(got, value(r.Data))
				return err
			}, again)
		}
		call := s.tick()
		again = func(err error) {
			switch {
			case err == nil:
				s.log(c.id, call, historyOp{Record: slot*s.l.Records + records[0], Old: got[len(got)-1]})
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
			c.start(&Releaser{Grant: m.Grant, Owner: c.tags.Owner}, func(err error) {
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
	*changer
	flaws flaws
}

func (b *blind) Step() (Verdict, error) {
	if b.flaws.blindWrite && b.state == acquireAsked {
		binary.NativeEndian.PutUint64(b.Mem[b.Ops[b.lock].At:], 0)
	}
	if b.flaws.blindReader {
		clear(b.Mem[b.L.ReadersAt():][:b.L.ReadersSize()])
	}
	return b.changer.Step()
}

// credulous takes the valid copy of a chain's record for the current one.
type credulous struct{ *Reader }

func (m *credulous) Step() (Verdict, error) {
	if m.posted {
		pair := m.Mem[m.L.PairAt():][:m.L.PairSize()]
		half := len(pair) / 2
		cur, err := m.L.DecodePair(pair)
		if err == nil && !cur.Whole {
			copy(pair[(1-cur.Which)*half:], pair[cur.Which*half:][:half])
		}
	}
	return m.Reader.Step()
}

var errChange = errors.New("no change")

// runHistory runs and checks one; reads has clients do nothing but read and update.
func runHistory(seed uint64, f flaws, reads bool, all *AgentStats) error {
	clients := 2 + int(seed%3)
	l := memory.Layout{Slots: 1 + int(seed%2), Size: 16, Records: 1 + int(seed/2%2), Clients: 4, Swap: 8}
	bitless := seed%11 == 3 && !f.any() // not all have a bit among the readers
	if bitless {
		l.Clients = 520
	}
	s := newSim(seed, l, clients, f)
	if bitless {
		for _, c := range s.clients {
			c.tags.Owner += memory.MostReaderBits - 1
		}
	}
	if seed%7 < 2 {
		s.longAfter()
	}
	operation, kills := (*simClient).anything, int(seed/4%4)
	switch { // what shows the flaw soonest
	case f.noDrain || f.singleCopy || f.tornRead || reads:
		kills, operation = 3, (*simClient).readOrUpdate
	case f.swapOneCopy:
		operation = func(c *simClient) { c.swap(s.rng.IntN(s.l.Slots)) }
	case f.anyAgent || f.forgetful:
		operation = func(c *simClient) { c.chain(s.rng.IntN(s.l.Slots), s.rng.IntN(s.l.Records)) }
	}
	if err := s.run(8, kills, operation); err != nil {
		return err
	}
	n := s.agent.core.Stats
	all.Done, all.Differs, all.Busy, all.NotAcquired = all.Done+n.Done, all.Differs+n.Differs, all.Busy+n.Busy, all.NotAcquired+n.NotAcquired
	all.Repeated, all.Unknown, all.Carried = all.Repeated+n.Repeated, all.Unknown+n.Unknown, all.Carried+n.Carried
	all.Turns, all.Lapsed = all.Turns+n.Turns, all.Lapsed+n.Lapsed
	return s.check()
}

// Histories of all forms together, of clients and agents that are killed, are
// linearizable.
func TestHistories(t *testing.T) {
	seeds := 400
	if !testing.Short() {
		seeds = 30000
	}
	var agents AgentStats
	for seed := range uint64(seeds) {
		for _, reads := range []bool{false, true} {
			if err := runHistory(seed, flaws{}, reads, &agents); err != nil {
				t.Fatalf("seed %d, reads %v: %v", seed, reads, err)
			}
		}
	}
	t.Logf("agents: %+v", agents)
	for _, n := range []uint64{agents.Done, agents.Differs, agents.NotAcquired, agents.Repeated, agents.Unknown, agents.Carried, agents.Busy, agents.Turns, agents.Lapsed} {
		require.Positive(t, n, "something never happened")
	}
}

// The same check finds what is wrong when one of the rules is broken.
func TestHistoriesFindFlaws(t *testing.T) {
	for name, f := range map[string]flaws{
		"write without looking":    {blindWrite: true},
		"write under readers":      {blindReader: true},
		"no fence":                 {noFence: true},
		"no READ after the fence":  {noDrain: true},
		"one copy":                 {singleCopy: true},
		"one valid copy":           {tornRead: true},
		"two WRITEs under a lock":  {writesAtOnce: true},
		"swap to the current copy": {swapOneCopy: true},
		"agent under readers":      {blindAgent: true},
		"agent without keys":       {forgetful: true},
		"agent for another":        {anyAgent: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(100000) {
				if err := runHistory(seed, f, false, new(AgentStats)); errors.Is(err, errHistory) {
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
	total := 1_000_000
	if testing.Short() {
		total = 5_000
	}
	const clients = 4
	var counts [2]struct{ done, unknown uint64 } // in records, and in private copies
	s := newSim(1, memory.Layout{Slots: 1, Size: 8, Clients: clients, Swap: 2 * clients}, clients, flaws{})
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
	cur, err := s.current(0)
	require.NoError(t, err)
	p := memory.LoadWord(s.mem, s.l.PointerOff(0))
	version, data, err := memory.Decode(s.mem[s.l.SwapOff(0, pointerIndex(p)):][:s.l.SwapStride()])
	require.NoError(t, err)
	require.Equal(t, PointerVersion(p), version)
	for i, c := range []struct{ version, value uint64 }{{cur.Version, value(cur.Body)}, {version, value(data)}} {
		n := counts[i]
		require.Equal(t, c.version, c.value)
		require.GreaterOrEqual(t, c.value, n.done)
		require.LessOrEqual(t, c.value, n.done+n.unknown)
		t.Logf("%d increments done, %d of unknown outcome, of which %d came through", n.done, n.unknown, c.value-n.done)
	}
	t.Logf("the last agent of %d: %+v", s.agent.lives, s.agent.core.Stats)
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
	allowed := func() error { return nil }
	if c.s.rng.IntN(3) > 0 {
		c.start(update(Acquire{Tags: c.tags, Data: true}, []int{0}, allowed, func(old [][]byte) ([][]byte, error) { return [][]byte{plusOne(old[0])}, nil }), ended)
		return
	}
	m := &Acquire{Tags: c.tags}
	c.start(m, func(err error) {
		if err != nil {
			ended(err)
			return
		}
		var old memory.Current
		var seen []byte
		c.load(0, func(cur memory.Current) error {
			old = copyOf(&cur)
			r, err := c.s.l.Record(&old, 0)
			seen = r.Data
			return err
		}, func(err error) {
			release := Releaser{Grant: m.Grant, Owner: c.tags.Owner}
			if err != nil {
				c.start(&release, func(lost error) { ended(errors.Join(err, lost)) })
				return
			}
			c.start(&stageAll{Releaser: release, from: &old, records: []int{0}, data: [][]byte{plusOne(seen)}}, ended)
		})
	})
}

// incrementChain has the agent do it.
func (c *simClient) incrementChain(plusOne func([]byte) []byte, ended func(error)) {
	c.ask(0, true, nil, []wire.Access{{Kind: wire.AccessRead}}, func(r wire.ChainReply, _ int64) {
		if r.Status != wire.ChainDone {
			ended(ErrNotAcquired)
			return
		}
		old := r.Ops.Next()
		accesses := []wire.Access{{Kind: wire.AccessCompare, Version: old.Version}, {Kind: wire.AccessWrite, Data: plusOne(old.Data)}}
		c.ask(0, false, nil, accesses, func(r wire.ChainReply, _ int64) {
			if r.Status != wire.ChainDone {
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

func copyOf(c *memory.Current) memory.Current {
	d := *c
	d.Body = bytes.Clone(c.Body)
	return d
}
