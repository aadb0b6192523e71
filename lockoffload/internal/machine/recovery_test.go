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
	b := newBenchOf(memory.Layout{Slots: 1000, Size: 8, Clients: 70})
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
	storeWord(mem, l.TicketOff(700), memory.TakeTicket)
	storeWord(mem, l.TicketOff(701), memory.TakeTicket)
	for i := range 2 * l.Places() { // of slots with more of theirs than a list has room for
		storeWord(mem, l.QueueOff(700+i%2, uint32(i/2)), memory.QueueEntry(uint16(1+i%16), 3, uint32(i/2)))
	}
	m := (&Recovery{Region: mem}).DeadSessions(l, dead...)
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	ops := slices.Concat(lists...)
	require.Equal(t, OpRead, ops[0].Kind, "first of all what is on its way comes in")
	require.Len(t, ops, 1+21+2+2*l.Places())
	require.LessOrEqual(t, len(lists), 1+len(ops)/fullList+1)
	require.Equal(t, 21+3+2*l.Places(), m.Freed)
	for slot := range l.Slots {
		require.Zero(t, memory.LoadWord(mem, l.LockOff(slot)))
	}
	require.EqualValues(t, 1<<40, memory.LoadWord(mem, l.ReadersOff(500)))
	require.EqualValues(t, 1<<6, memory.LoadWord(mem, l.ReadersOff(500)+8))
	for i := range 2 * l.Places() {
		require.Equal(t, memory.SkipMark(uint32(i/2)), memory.LoadWord(mem, l.QueueOff(700+i%2, uint32(i/2))))
	}
}

// Of a region that nobody has all is taken back, whoever left it; of one that may have an
// agent all but that one's locks.
func TestFullRecovery(t *testing.T) {
	for name, agent := range map[string]bool{"no agent": false, "agent": true} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOf(memory.Layout{Slots: 40, Size: 8, Clients: 512})
			l, mem := &b.s.l, b.s.mem
			for slot, owner := range []uint16{1, 512, memory.AgentOwner} {
				storeWord(mem, l.LockOff(slot), memory.MakeTag(owner, uint16(slot), 1))
			}
			for slot := range l.Slots {
				storeWord(mem, l.ReadersOff(slot)+slot%8*8, 1<<(slot%64)|1<<63)
			}
			storeWord(mem, l.TicketOff(39), 3*memory.TakeTicket)
			storeWord(mem, l.QueueOff(39, 0), memory.SkipMark(0))
			storeWord(mem, l.QueueOff(39, 1), memory.QueueEntry(7, 9, 1))
			m, locks, left := FullRecovery(l, mem), 3, uint64(0)
			if agent {
				m, locks, left = SessionsRecovery(l, mem), 2, memory.MakeTag(memory.AgentOwner, 2, 1)
			}
			_, err := b.run(t, m)
			require.NoError(t, err)
			require.Equal(t, locks+2*l.Slots+1, m.Freed)
			require.Equal(t, []TicketQueue{{39, 3}}, m.Queues)
			for slot := range l.Slots {
				if slot == 2 {
					require.Equal(t, left, memory.LoadWord(mem, l.LockOff(slot)))
				} else {
					require.Zero(t, memory.LoadWord(mem, l.LockOff(slot)))
				}
				for i := range l.ReadersSize() / 8 {
					require.Zero(t, memory.LoadWord(mem, l.ReadersOff(slot)+8*i))
				}
			}
			for ticket := range uint32(2) {
				require.Equal(t, memory.SkipMark(ticket), memory.LoadWord(mem, l.QueueOff(39, ticket)))
			}
		})
	}
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

// What a million slots cost who looks for what sixteen dead clients held.
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

// A ticket whose owner was slow is skipped by the target, and passed on once more by
// the owner. That mends itself, and the target does not make it worse.
func TestTicketPassedOnTwice(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	storeWord(mem, l.TicketOff(0), 5<<32|6)
	w := b.ticketWatch()
	now := time.Now()
	for range 1000 {
		now = now.Add(time.Second)
		b.help(t, w, now, func(uint64) bool { return false })
	}
	next, serving := memory.Tickets(memory.LoadWord(mem, l.TicketOff(0)))
	require.Equal(t, next, serving)
	m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Queue: new(Queue)}
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	require.LessOrEqual(t, len(lists), 2, "of a slot that is free")
}

// Until the target has looked, a client gets by without it.
func TestTicketPassedOnTwiceIsOvertaken(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 4})
	storeWord(b.s.mem, b.s.l.TicketOff(0), 5<<32|6)
	m := &Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Queue: new(Queue)}
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	require.LessOrEqual(t, len(lists), 4)
}

// ticketWatch is one with a lease of a second.
func (b *bench) ticketWatch() *TicketWatch {
	return NewTicketWatch(&b.s.l, b.s.mem, time.Second)
}

// A slot with tickets that are drawn, or passed on twice, is looked at.
func TestQueuedSlots(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 4, Size: 8, Clients: 4})
	w := b.ticketWatch()
	storeWord(b.s.mem, b.s.l.TicketOff(0), 7<<32|7)
	storeWord(b.s.mem, b.s.l.TicketOff(1), memory.TakeTicket)
	storeWord(b.s.mem, b.s.l.TicketOff(2), 5<<32|6)
	require.Equal(t, []int{1, 1, 2, 4}, []int{w.Queue(0, 4), w.Queue(1, 4), w.Queue(2, 4), w.Queue(3, 4)})
	require.Equal(t, 1, w.Queue(0, 1), "and none beyond the end")
}

// help does what the watch does about slot 0.
func (b *bench) help(t *testing.T, w *TicketWatch, now time.Time, living func(uint64) bool) {
	t.Helper()
	for range 100 {
		m := w.Look(now, 0, living)
		if m == nil {
			return
		}
		_, err := b.run(t, m)
		require.NoError(t, err)
	}
	t.Fatal("no end")
}

func (b *bench) serving() uint32 {
	_, serving := memory.Tickets(memory.LoadWord(b.s.mem, b.s.l.TicketOff(0)))
	return serving
}

// The owner of a ticket has a lease to put down whose it is.
func TestTicketOfASlowOwner(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	w, began := b.ticketWatch(), time.Now()
	dead := func(uint64) bool { return false }
	at := func(after time.Duration) uint32 {
		b.help(t, w, began.Add(after), dead)
		return b.serving()
	}
	storeWord(mem, l.TicketOff(0), 6<<32|5)
	require.EqualValues(t, 5, at(0))
	require.EqualValues(t, 5, at(time.Second-1))
	require.EqualValues(t, 6, at(time.Second))
	require.EqualValues(t, 6, at(time.Hour), "that one nobody has drawn")
	require.Empty(t, w.Drawn)

	storeWord(mem, l.TicketOff(0), 6<<32|5)
	storeWord(mem, l.QueueOff(0, 5), memory.SkipMark(5))
	require.EqualValues(t, 6, at(0), "who gave up is not waited for")

	storeWord(mem, l.TicketOff(0), 6<<32|5)
	storeWord(mem, l.QueueOff(0, 5), memory.QueueEntry(1, 1, 5))
	living := func(tag uint64) bool { return memory.TagIdentity(tag) == 1<<16|1 }
	b.help(t, w, began, living)
	require.Empty(t, w.Drawn, "who has signed may take all the time")
	b.help(t, w, began, dead)
	require.NotEmpty(t, w.Drawn, "unless the session is over")
}

// Tickets that dead clients drew and did not sign are skipped a lease after the end of
// their sessions, all of them at that time, and those between them are not.
func TestUnsignedTickets(t *testing.T) {
	for _, first := range []uint32{9, 1<<32 - 3} {
		b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 16})
		l, mem := &b.s.l, b.s.mem
		storeWord(mem, l.TicketOff(0), uint64(first+6)<<32|uint64(first))
		storeWord(mem, l.QueueOff(0, first+2), memory.QueueEntry(1, 1, first+2))
		storeWord(mem, l.QueueOff(0, first+3), memory.QueueEntry(2, 1, first+3)) // to be recovered
		rec := (&Recovery{Region: mem}).DeadSessions(l, Identity{Owner: 2, Epoch: 1})
		_, err := b.run(t, rec)
		require.NoError(t, err)
		require.Equal(t, []TicketQueue{{0, first + 6}}, rec.Queues)

		w, ended := b.ticketWatch(), time.Now()
		living := func(tag uint64) bool { return tag>>48 == 1 }
		w.Note(ended, 0, rec.Queues[0].Next)
		w.Note(ended, 0, rec.Queues[0].Next)
		require.Len(t, w.Drawn[0], 1)
		b.help(t, w, ended.Add(time.Second/2), living)
		require.Equal(t, first, b.serving())
		// Tickets that are drawn later have their own time.
		storeWord(mem, l.TicketOff(0), uint64(first+8)<<32|uint64(first))
		w.Note(ended.Add(time.Second/2), 0, first+8)
		b.help(t, w, ended.Add(time.Second), living)
		require.Equal(t, first+2, b.serving(), "the one of the client that lives")
		require.Equal(t, memory.QueueEntry(1, 1, first+2), memory.LoadWord(mem, l.QueueOff(0, first+2)))
		require.Equal(t, memory.SkipMark(first+5), memory.LoadWord(mem, l.QueueOff(0, first+5)), "those behind it do not wait once more")
		require.Zero(t, memory.LoadWord(mem, l.QueueOff(0, first+6)))
		_, err = b.run(t, &Releaser{Grant: Grant{tag: memory.MakeTag(1, 1, 1), fair: true, ticket: first + 2}, Owner: 1})
		require.ErrorIs(t, err, ErrLost) // the lock word is free here
		b.help(t, w, ended.Add(time.Second), living)
		require.Equal(t, first+6, b.serving())
		b.help(t, w, ended.Add(3*time.Second/2), living)
		require.Equal(t, first+8, b.serving())
		require.Empty(t, w.Drawn)
	}
}

// An owner that finds its ticket marked draws another one, and does not pass both on.
func TestMarkedTicketIsLeft(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	storeWord(mem, l.TicketOff(0), 1<<32) // somebody else is being served
	storeWord(mem, l.QueueOff(0, 0), memory.QueueEntry(2, 1, 0))
	m := b.prepare(&Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Queue: new(Queue)}).(*Acquire)
	execute := func() {
		v, err := m.Step()
		require.NoError(t, err)
		require.Equal(t, Post, v)
		for x := (&simList{w: m.Base(), ops: m.Ops}); !b.s.execute(x); {
		}
	}
	execute() // draws 1
	require.EqualValues(t, 2<<32, memory.LoadWord(mem, l.TicketOff(0)))
	storeWord(mem, l.QueueOff(0, 1), memory.SkipMark(1))
	execute() // finds the mark
	execute() // draws 2
	require.EqualValues(t, 3<<32, memory.LoadWord(mem, l.TicketOff(0)))
	execute()
	require.Equal(t, memory.QueueEntry(1, 1, 2), memory.LoadWord(mem, l.QueueOff(0, 2)))
}

// More tickets than places: those that are too far from their turn to have one of their own
// leave it to the one before, which nobody then takes for a dead client's.
func TestTicketsBeyondThePlaces(t *testing.T) {
	b := newBenchOf(memory.Layout{Slots: 1, Size: 8, Clients: 2})
	l, mem := &b.s.l, b.s.mem
	storeWord(mem, l.TicketOff(0), 3<<32|1) // 1, which is being served, and 2 are slow
	m := b.prepare(&Acquire{Tags: &memory.Tagger{Owner: 1, Epoch: 1}, Queue: new(Queue)}).(*Acquire)
	look := func() {
		v, err := m.Step()
		require.NoError(t, err)
		for x := (&simList{w: m.Base(), ops: m.Ops}); v == Post && !b.s.execute(x); {
		}
	}
	look() // draws 3, which has the place of 1
	look()
	require.Zero(t, memory.LoadWord(mem, l.QueueOff(0, 1)))
	storeWord(mem, l.TicketOff(0), 4<<32|2)
	for range 4 { // pauses, finds out, pauses, signs
		look()
	}
	require.Equal(t, memory.QueueEntry(1, 1, 3), memory.LoadWord(mem, l.QueueOff(0, 3)))

	// Nor are they noted before they can sign.
	storeWord(mem, l.TicketOff(0), 9<<32|2)
	rec := (&Recovery{Region: mem}).DeadSessions(l, Identity{Owner: 2, Epoch: 1})
	_, err := b.run(t, rec)
	require.NoError(t, err)
	require.Equal(t, []TicketQueue{{0, 4}}, rec.Queues)
	w, living := b.ticketWatch(), func(tag uint64) bool { return tag>>48 == 1 }
	b.help(t, w, time.Now(), living)
	require.EqualValues(t, 4, w.Drawn[0][0].before)
}
