package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// agentWorld is a core with everything around it: clients behind a network
// that loses, repeats and reorders, initiators that work on the same lock words
// by one-sided operations, and a target's device that executes the posted
// operations in any order that it may. Each WRITE has data of its own, so the
// history of a record shows the chains that were executed, and how often.
type agentWorld struct {
	rng     *rand.Rand
	core    *Agent
	variant agentVariant
	now     time.Duration

	clients  []*agentSimClient
	sides    []*agentSideClient
	requests []agentSimMessage
	replies  []agentSimMessage
	lists    map[int32][]AgentOp // posted, by job
	results  map[int32][]uint64
	buffers  []int32
	memory   [][]byte // of the receive buffers

	value   uint64
	written map[agentSimRecord]map[uint64][]byte // data by version, of what is known to be written
	newest  map[agentSimRecord]uint64            // in replies so far
	reads   []agentSimRead
}

type agentVariant int

const (
	agentSound     agentVariant = iota
	agentForgetful              // remembers no chain
	agentBusyAgain              // does not remember that it said busy
	agentBlind                  // does not look at the readers
	agentVariants
)

type agentSimRecord struct{ slot, record int }

type agentSimRead struct {
	rec     agentSimRecord
	version uint64
	data    []byte
}

type agentSimMessage struct {
	client int
	body   []byte
}

type agentSimClient struct {
	id     uint64
	peer   int32
	seq    uint64
	open   map[uint64]*agentSimChain
	closed map[uint64]*agentSimChain
}

type agentSimChain struct {
	body    []byte
	request wire.ChainRequest
	floor   map[agentSimRecord]uint64 // versions in replies to any client when it was issued
	answer  []byte
}

const (
	agentSimSlots   = 2
	agentSimSize    = 16
	agentSimWindow  = 3
	agentSimRecords = 2
)

func newAgentWorld(seed uint64, v agentVariant) *agentWorld {
	w := &agentWorld{
		rng: rand.New(rand.NewPCG(seed, 7)), variant: v,
		lists: map[int32][]AgentOp{}, results: map[int32][]uint64{},
		written: map[agentSimRecord]map[uint64][]byte{}, newest: map[agentSimRecord]uint64{},
	}
	l := AgentLimits{
		Peers: 3, Window: agentSimWindow, Queue: 4, Receives: 6, Message: 512,
		MaxWait: 400 * time.Microsecond, Eager: time.Duration(seed%3) * 10 * time.Microsecond, MinPause: 5 * time.Microsecond, MaxPause: 60 * time.Microsecond,
		Keep: seed%4 > 0,
	}
	s := newAgentSimSlots(memory.Layout{Slots: agentSimSlots, Size: agentSimSize, Records: agentSimRecords})
	w.core = NewAgent(l, s, make([]byte, 3*(agentSimWindow+1)*512), seed)
	for j := range l.Receives {
		w.buffers = append(w.buffers, int32(j))
		w.memory = append(w.memory, make([]byte, 512))
	}
	for slot := range agentSimSlots {
		for rec := range agentSimRecords {
			w.written[agentSimRecord{slot, rec}] = map[uint64][]byte{}
		}
	}
	for i := range 3 {
		c := &agentSimClient{id: uint64(100 + i), open: map[uint64]*agentSimChain{}, closed: map[uint64]*agentSimChain{}}
		c.peer, _, _ = w.core.Attach(c.id)
		w.clients = append(w.clients, c)
	}
	for i := range 2 {
		w.sides = append(w.sides, &agentSideClient{w: w, owner: uint64(i + 1)})
	}
	return w
}

// data is different for each WRITE.
func (w *agentWorld) data() []byte {
	w.value++
	b := binary.LittleEndian.AppendUint64(nil, w.value)
	return binary.LittleEndian.AppendUint64(b, ^w.value)
}

// commit notes that a version was written, which may happen once only.
func (w *agentWorld) commit(r agentSimRecord, version uint64, data []byte) error {
	if old, there := w.written[r][version]; there {
		return fmt.Errorf("%v: version %d written twice, %x and %x", r, version, old, data)
	}
	w.written[r][version] = bytes.Clone(data)
	w.newest[r] = max(w.newest[r], version)
	return nil
}

func (w *agentWorld) issue(i int) {
	c := w.clients[i]
	if c.open[c.seq+1-agentSimWindow] != nil || len(c.open) >= agentSimWindow {
		return
	}
	c.seq++
	ch := &agentSimChain{floor: map[agentSimRecord]uint64{}}
	for r, v := range w.newest {
		ch.floor[r] = v
	}
	slot := w.rng.IntN(agentSimSlots)
	r := wire.ChainRequest{Client: c.id, Seq: c.seq, Slot: uint32(slot), Tries: uint32(w.rng.IntN(5)), Deadline: uint32(w.rng.IntN(300))}
	var ops []wire.Access
	read := func(rec int) { ops = append(ops, wire.Access{Kind: wire.AccessRead, Record: uint16(rec)}) }
	write := func(rec int, d []byte) {
		ops = append(ops, wire.Access{Kind: wire.AccessWrite, Record: uint16(rec), Data: d})
	}
	switch w.rng.IntN(4) {
	case 0:
		r.Shared = w.rng.IntN(2) == 0
		read(0)
		read(1)
	case 1: // compare and write
		rec := w.rng.IntN(agentSimRecords)
		ops = append(ops, wire.Access{Kind: wire.AccessCompare, Record: uint16(rec), Version: w.newest[agentSimRecord{slot, rec}]})
		d := w.data()
		if slot == 1 {
			write(1-rec, d)
		}
		write(rec, d)
	default:
		d := w.data()
		write(0, d)
		if slot == 1 {
			write(1, d) // records of slot 1 are always written together
		}
		if w.rng.IntN(2) == 0 {
			read(0)
		}
	}
	b := r.AppendTo(nil)
	for _, a := range ops {
		b = wire.AppendAccess(b, a)
	}
	ch.body = wire.SealMessage(b, len(ops))
	ch.request, _ = wire.DecodeRequest(ch.body)
	c.open[c.seq] = ch
	w.requests = append(w.requests, agentSimMessage{i, ch.body})
}

// deliver hands a request to the core.
func (w *agentWorld) deliver(m agentSimMessage) {
	if len(w.buffers) == 0 {
		w.requests = append(w.requests, m)
		return
	}
	j := w.buffers[len(w.buffers)-1]
	w.buffers = w.buffers[:len(w.buffers)-1]
	n := copy(w.memory[j], m.body)
	c := w.clients[m.client]
	entries := w.core.peers[c.peer].entries
	r, _ := wire.DecodeRequest(m.body)
	e := &entries[r.Seq%agentSimWindow]
	if w.variant == agentForgetful && e.seq == r.Seq {
		*e = agentEntry{}
	}
	w.core.Submit(w.now, j, c.peer, w.memory[j][:n])
	if w.variant == agentBusyAgain && e.seq == r.Seq && !e.running {
		if wire.ChainStatus(w.core.reply(c.peer, int32(r.Seq%agentSimWindow))[1]) == wire.ChainBusy {
			*e = agentEntry{seq: r.Seq - agentSimWindow}
		}
	}
	w.take()
}

// take moves the core's output into the world.
func (w *agentWorld) take() {
	if w.core.Keeps() && w.rng.IntN(3) == 0 {
		w.core.Pause()
	}
	w.core.Turn(w.now)
	for _, op := range w.core.Ops {
		w.lists[op.Job] = append(w.lists[op.Job], op)
	}
	for _, o := range w.core.Outs {
		for i, c := range w.clients {
			if c.peer == o.Peer {
				w.replies = append(w.replies, agentSimMessage{i, bytes.Clone(w.core.reply(o.Peer, o.Entry)[:o.N])})
				w.core.Sent(o.Peer, w.core.peers[o.Peer].conn)
			}
		}
	}
	w.buffers = append(w.buffers, w.core.Free...)
	w.core.Ops, w.core.Outs, w.core.Free = w.core.Ops[:0], w.core.Outs[:0], w.core.Free[:0]
}

func (w *agentWorld) word(off int) uint64 {
	return binary.LittleEndian.Uint64(w.core.Slots.mem[off:])
}

func (w *agentWorld) setWord(off int, v uint64) {
	binary.LittleEndian.PutUint64(w.core.Slots.mem[off:], v)
}

// execute performs the next operation of some job.
func (w *agentWorld) execute() {
	if len(w.lists) == 0 {
		return
	}
	var j int32
	pick := w.rng.IntN(len(w.lists))
	for job := range int32(len(w.memory)) { // not by the map's order: runs repeat
		if w.lists[job] == nil {
			continue
		}
		if pick == 0 {
			j = job
		}
		pick--
	}
	op := w.lists[j][0]
	w.lists[j] = w.lists[j][1:]
	for i := range op.N / 8 {
		w.results[j] = append(w.results[j], w.word(op.Off+8*i))
	}
	old := w.word(op.Off)
	if op.Kind == OpCmpSwap && old == op.A {
		w.setWord(op.Off, op.B)
	}
	if !op.Last {
		return
	}
	res := w.results[j]
	delete(w.lists, j)
	delete(w.results, j)
	w.core.blindly(w.variant == agentBlind, j, func() { w.core.Result(w.now, j, res) })
	w.take()
}

// blindly has the core do something for a job while no reader of its slot is to be seen.
func (c *Agent) blindly(blind bool, job int32, f func()) {
	if !blind {
		f()
		return
	}
	at := c.Slots.ReadersOff(int(c.jobs[job].request.Slot))
	words := c.Slots.mem[at : at+c.Slots.ReadersSize()]
	were := bytes.Clone(words)
	clear(words)
	f()
	copy(words, were)
}

// answered checks a reply against what is known.
func (w *agentWorld) answered(m agentSimMessage) error {
	c := w.clients[m.client]
	r, err := wire.DecodeReply(m.body)
	if err != nil || r.Client != c.id {
		return fmt.Errorf("reply %x: %w", m.body, err)
	}
	ch := c.open[r.Seq]
	if ch == nil {
		if ch = c.closed[r.Seq]; ch != nil && r.Status != wire.ChainUnknown && !bytes.Equal(ch.answer, m.body) {
			return fmt.Errorf("chain %d/%d answered %x, then %x", c.id, r.Seq, ch.answer, m.body)
		}
		return nil
	}
	if r.Status == wire.ChainUnknown || r.Status == wire.ChainRefused || r.Status == wire.ChainDamaged {
		return fmt.Errorf("chain %d/%d: status %d", c.id, r.Seq, r.Status)
	}
	ch.answer = m.body
	delete(c.open, r.Seq)
	c.closed[r.Seq] = ch
	asked := ch.request.Ops
	if limit := ch.request.Tries; limit > 0 && r.Tries > limit {
		return fmt.Errorf("chain %d/%d: %d tries of %d", c.id, r.Seq, r.Tries, limit)
	}
	if r.Status != wire.ChainDone && r.Status != wire.ChainDiffers {
		return nil
	}
	if r.Ops.N != asked.N {
		return fmt.Errorf("chain %d/%d: %d operations answered", c.id, r.Seq, r.Ops.N)
	}
	var both []wire.Access
	for asked.N > 0 {
		a, got := asked.Next(), r.Ops.Next()
		rec := agentSimRecord{int(ch.request.Slot), int(a.Record)}
		switch {
		case got.Version < ch.floor[rec]:
			return fmt.Errorf("chain %d/%d: version %d of %v, %d was answered before", c.id, r.Seq, got.Version, rec, ch.floor[rec])
		case a.Kind == wire.AccessWrite && r.Status == wire.ChainDone:
			if err := w.commit(rec, got.Version, a.Data); err != nil {
				return fmt.Errorf("chain %d/%d: %w", c.id, r.Seq, err)
			}
		case a.Kind == wire.AccessRead:
			w.reads = append(w.reads, agentSimRead{rec: rec, version: got.Version, data: got.Data})
			both = append(both, got)
		}
	}
	if len(both) == 2 && ch.request.Slot == 1 && !bytes.Equal(both[0].Data, both[1].Data) {
		return fmt.Errorf("chain %d/%d read %x and %x of one slot", c.id, r.Seq, both[0].Data, both[1].Data)
	}
	return nil
}

func pickOut[T any](rng *rand.Rand, s *[]T) (v T) {
	i := rng.IntN(len(*s))
	v = (*s)[i]
	*s = append((*s)[:i], (*s)[i+1:]...)
	return v
}

func (w *agentWorld) Step(chaos bool) error {
	w.now += time.Duration(w.rng.IntN(4000)) * time.Nanosecond
	switch n := w.rng.IntN(20); {
	case n < 2 && chaos:
		w.issue(w.rng.IntN(len(w.clients)))
	case n < 5 && len(w.requests) > 0:
		m := pickOut(w.rng, &w.requests)
		switch p := w.rng.IntN(8); {
		case p == 0 && chaos: // lost
		case p == 1 && chaos: // and once more later
			w.requests = append(w.requests, m)
			w.deliver(m)
		default:
			w.deliver(m)
		}
	case n < 8 && len(w.replies) > 0:
		m := pickOut(w.rng, &w.replies)
		if w.rng.IntN(5) == 0 && chaos {
			return nil
		}
		return w.answered(m)
	case n == 8:
		c := w.rng.IntN(len(w.clients))
		for seq := uint64(1); seq <= w.clients[c].seq; seq++ {
			if ch := w.clients[c].open[seq]; ch != nil && w.rng.IntN(3) == 0 {
				w.requests = append(w.requests, agentSimMessage{c, ch.body})
			}
		}
	case n == 9 && chaos && w.rng.IntN(10) == 0: // a new queue pair
		c := w.clients[w.rng.IntN(len(w.clients))]
		_, _, err := w.core.Attach(c.id)
		return err
	case n < 14:
		w.execute()
	case n < 18:
		return w.sides[w.rng.IntN(len(w.sides))].Step(chaos)
	default:
		w.take()
	}
	return nil
}

// run runs the world, and returns an error for a history that is wrong.
func (w *agentWorld) run(steps int) error {
	for range steps {
		if err := w.Step(true); err != nil {
			return err
		}
	}
	for i := 0; !w.quiet(); i++ {
		if err := w.Step(false); err != nil {
			return err
		}
		if i > 100000 {
			return fmt.Errorf("no end: %+v", w.core.Stats)
		}
	}
	for rec, versions := range w.written {
		cur, err := w.core.Slots.read(rec.slot)
		if err != nil {
			return err
		}
		now, err := w.core.Slots.Record(&cur, rec.record)
		if err != nil || now.Version != uint64(len(versions)) {
			return fmt.Errorf("%v is at version %d, %d WRITEs were answered: %w", rec, now.Version, len(versions), err)
		}
		if now.Version > 0 && !bytes.Equal(now.Data, versions[now.Version]) {
			return fmt.Errorf("%v has %x, version %d is %x", rec, now.Data, now.Version, versions[now.Version])
		}
	}
	for _, r := range w.reads {
		if !bytes.Equal(r.data, w.written[r.rec][r.version]) {
			return fmt.Errorf("%v: version %d read as %x, written as %x", r.rec, r.version, r.data, w.written[r.rec][r.version])
		}
	}
	for slot := range agentSimSlots {
		if w.word(w.core.Slots.LockOff(slot)) != 0 || w.word(w.core.Slots.ReadersOff(slot)) != 0 {
			return fmt.Errorf("slot %d stays locked", slot)
		}
	}
	return nil
}

func (w *agentWorld) quiet() bool {
	for _, c := range w.clients {
		if len(c.open) > 0 {
			return false
		}
	}
	for _, s := range w.sides {
		if s.at != 0 {
			return false
		}
	}
	return len(w.lists) == 0 && len(w.requests) == 0 && !w.core.Keeps()
}

// onHost keeps long simulations out of the lab, which is slow.
func onHost(t *testing.T) {
}

func TestAgentSimulated(t *testing.T) {
	onHost(t)
	seeds := uint64(4000)
	if testing.Short() {
		seeds = 300
	}
	var all AgentStats
	for seed := range seeds {
		w := newAgentWorld(seed, agentSound)
		require.NoError(t, w.run(2000), "seed %d", seed)
		s := w.core.Stats
		all.Done, all.Busy, all.Repeated = all.Done+s.Done, all.Busy+s.Busy, all.Repeated+s.Repeated
		all.NotAcquired, all.Differs, all.Unknown = all.NotAcquired+s.NotAcquired, all.Differs+s.Differs, all.Unknown+s.Unknown
		require.Zero(t, w.core.Taken)
	}
	t.Logf("%+v", all)
	for _, n := range []uint64{all.Done, all.Busy, all.Repeated, all.NotAcquired, all.Differs, all.Unknown} {
		require.Positive(t, n, "something never happened")
	}
}

// An agent without one of its rules is found out.
func TestAgentVariantsFail(t *testing.T) {
	onHost(t)
	for v := agentForgetful; v < agentVariants; v++ {
		failed := 0
		for seed := range uint64(60) {
			if newAgentWorld(seed, v).run(2000) != nil {
				failed++
			}
		}
		require.Positive(t, failed, "variant %d passes", v)
		t.Logf("variant %d: %d of 60 runs fail", v, failed)
	}
}

// newAgentSimSlots lays out memory as a target would.
func newAgentSimSlots(l memory.Layout) AgentSlots {
	l = l.WithDefaults()
	s := NewAgentSlots(l, make([]byte, l.Bytes()), 1)
	l.Format(s.mem, 0)
	return s
}
