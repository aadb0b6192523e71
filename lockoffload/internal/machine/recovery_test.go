package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// newBenchOf is a bench with a layout.
func newBenchOf(l memory.Layout) *bench {
	return &bench{newSim(1, l, 1, flaws{})}
}

// Many sessions that died are recovered in one pass, by requests for what they held
// alone, those of several slots in one list.
func TestRecoveryOfMany(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1000, Size: 8, Clients: 512})
	l, mem := &b.s.l, b.s.mem
	var dead []Identity
	for owner := uint16(1); owner <= 16; owner++ {
		dead = append(dead, Identity{Owner: owner, Epoch: 3})
		storeWord(mem, l.LockOff(int(owner)*10), memory.MakeTag(owner, 3, 1))
	}
	for i := range 5 { // a list that has room for some of what is behind them in slot 700
		storeWord(mem, l.LockOff(600+i), memory.MakeTag(1, 3, 1))
	}
	dead = append(dead, Identity{Owner: 70, Epoch: 1})
	storeWord(mem, l.ReadersOff(500), 0b11<<1|1<<40) // owners 2, 3 and 41
	storeWord(mem, l.ReadersOff(500)+8, 1<<5|1<<6)   // 70 and 71
	words := l.ReadersSize() / 8
	for i := range words { // of slots with more of theirs than a list has room for
		dead = append(dead, Identity{Owner: uint16(64*i + 11), Epoch: 3})
		for slot := 700; slot < 702; slot++ {
			storeWord(mem, l.ReadersOff(slot)+8*i, 1<<10|1<<20)
		}
	}
	m := (&Recovery{Region: mem}).DeadSessions(l, dead...)
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	for _, ops := range lists {
		require.LessOrEqual(t, len(ops), memory.LocalWords, "all results have room")
	}
	ops := slices.Concat(lists...)
	require.Equal(t, OpRead, ops[0].Kind, "first of all what is on its way comes in")
	require.Len(t, ops, 1+21+2+2*words)
	require.LessOrEqual(t, len(lists), 1+len(ops)/fullList+1)
	require.Equal(t, 21+3+2*words, m.Freed)
	for slot := range l.Slots {
		require.Zero(t, memory.LoadWord(mem, l.LockOff(slot)))
	}
	require.EqualValues(t, 1<<40, memory.LoadWord(mem, l.ReadersOff(500)))
	require.EqualValues(t, 1<<6, memory.LoadWord(mem, l.ReadersOff(500)+8))
	for i := range words {
		for slot := 700; slot < 702; slot++ {
			require.EqualValues(t, 1<<20, memory.LoadWord(mem, l.ReadersOff(slot)+8*i))
		}
	}
}

// A server that takes over a region takes back all that sessions left, and no agent's locks.
func TestSessionsRecovery(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 40, Size: 8, Clients: 512})
	l, mem := &b.s.l, b.s.mem
	for slot, owner := range []uint16{1, 512, memory.AgentOwner} {
		storeWord(mem, l.LockOff(slot), memory.MakeTag(owner, uint16(slot), 1))
	}
	for slot := range l.Slots {
		storeWord(mem, l.ReadersOff(slot)+slot%8*8, 1<<(slot%64)|1<<63)
	}
	m := SessionsRecovery(l, mem)
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, 2+2*l.Slots, m.Freed)
	for slot := range l.Slots {
		if slot == 2 {
			require.Equal(t, memory.MakeTag(memory.AgentOwner, 2, 1), memory.LoadWord(mem, l.LockOff(slot)))
		} else {
			require.Zero(t, memory.LoadWord(mem, l.LockOff(slot)))
		}
		for i := range l.ReadersSize() / 8 {
			require.Zero(t, memory.LoadWord(mem, l.ReadersOff(slot)+8*i))
		}
	}
}

// A client may take a lock that an agent had reserved for it while the agent's locks are taken
// back: then it is the client's.
func TestAgentRecoveryBesideAClient(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	taken := memory.MakeTag(1, 3, 1)
	storeWord(mem, l.LockOff(0), memory.MakeTag(memory.AgentOwner, 1, memory.ReservedTag|1))
	m := AgentRecovery(mem)
	dead := m.Dead
	m.Dead = func(identity uint64) bool { // right behind the look at the word
		storeWord(mem, l.LockOff(0), taken)
		return dead(identity)
	}
	_, err := b.run(t, m)
	require.NoError(t, err)
	require.Equal(t, taken, memory.LoadWord(mem, l.LockOff(0)))
}

// A list that is full does not have the recovery begin anew, nor what is behind it wait
// for the end of the region.
func TestRecoveryLooksOnce(t *testing.T) {
	const slots = 1000
	b := newBenchOf(memory.Layout{Slots: slots, Size: 8, Clients: 4})
	for i := range 40 {
		storeWord(b.s.mem, b.s.l.LockOff(i*20), memory.MakeTag(1, 1, 1))
	}
	m := b.prepare((&Recovery{Region: b.s.mem}).DeadSessions(&b.s.l, Identity{Owner: 1, Epoch: 1})).(*Recovery)
	var at []int
	for {
		v, err := m.Step()
		require.NoError(t, err)
		if v == Done {
			break
		}
		at = append(at, m.Slot)
		for x := (&simList{w: m.Base(), ops: m.Ops}); !b.s.execute(x); {
		}
	}
	require.Equal(t, []int{0, 20 * (fullList - 1), 20 * (2*fullList - 1), 20 * (3*fullList - 1), slots}, at)
	require.Equal(t, 40, m.Freed)
}

// The cost of a million slots for the recovery of sixteen dead clients.
func TestRecoveryOfAMillionSlots(t *testing.T) {
	onHost(t)
	slots := 1_000_000
	if testing.Short() {
		slots = 50_000
	}
	b := newBenchOf(memory.Layout{Slots: slots, Size: 8, Clients: 16})
	var dead []Identity
	for owner := uint16(1); owner <= 16; owner++ {
		dead = append(dead, Identity{Owner: owner, Epoch: 1})
		storeWord(b.s.mem, b.s.l.LockOff(int(owner)*slots/20), memory.MakeTag(owner, 1, 1))
	}
	began := time.Now()
	m := (&Recovery{Region: b.s.mem}).DeadSessions(&b.s.l, dead...)
	lists, _, err := b.lists(t, m)
	took := time.Since(began)
	require.NoError(t, err)
	require.Len(t, slices.Concat(lists...), 17)
	t.Logf("%d slots: %d lists, %v", slots, len(lists), took)
}
