package lockoffload

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newBenchOf is a bench with a layout.
func newBenchOf(l Layout) *bench {
	return &bench{newSim(1, l, 1, flaws{})}
}

// Many sessions that died are recovered in one pass, by requests for what they held
// alone, those of several slots in one list.
func TestRecoveryOfMany(t *testing.T) {
	b := newBenchOf(Layout{Slots: 1000, Size: 8, Clients: 70})
	l, mem := &b.s.l, b.s.mem
	var dead []Invite
	for owner := uint16(1); owner <= 16; owner++ {
		dead = append(dead, Invite{Owner: owner, Epoch: 3})
		storeWord(mem, l.lockOff(int(owner)*10), makeTag(owner, 3, 1))
	}
	dead = append(dead, Invite{Owner: 70, Epoch: 1})
	storeWord(mem, l.readersOff(500), 0b11<<1|1<<40) // owners 2, 3 and 41
	storeWord(mem, l.readersOff(500)+8, 1<<5|1<<6)   // 70 and 71
	storeWord(mem, l.ticketOff(700), takeTicket)
	for i := range l.Clients { // of a slot with more of theirs than a list has room for
		storeWord(mem, l.queueOff(700, uint32(i)), queueEntry(uint16(1+i%16), 3, uint32(i)))
	}
	m := (&recovery{region: mem}).deadSessions(l, dead...)
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	ops := slices.Concat(lists...)
	require.Equal(t, opRead, ops[0].kind, "first of all what is on its way comes in")
	require.Len(t, ops, 1+16+2+l.Clients)
	require.LessOrEqual(t, len(lists), 1+len(ops)/fullList+1)
	require.Equal(t, 16+3+l.Clients, m.freed)
	for slot := range l.Slots {
		require.Zero(t, loadWord(mem, l.lockOff(slot)))
	}
	require.EqualValues(t, 1<<40, loadWord(mem, l.readersOff(500)))
	require.EqualValues(t, 1<<6, loadWord(mem, l.readersOff(500)+8))
	for i := range l.Clients {
		require.Equal(t, skipMark(uint32(i)), loadWord(mem, l.queueOff(700, uint32(i))))
	}
}

// What a million slots cost who looks for what sixteen dead clients held.
func TestRecoveryOfAMillionSlots(t *testing.T) {
	onHost(t)
	slots := 1_000_000
	if testing.Short() {
		slots = 50_000
	}
	b := newBenchOf(Layout{Slots: slots, Size: 8, Clients: 16})
	var dead []Invite
	for owner := uint16(1); owner <= 16; owner++ {
		dead = append(dead, Invite{Owner: owner, Epoch: 1})
		storeWord(b.s.mem, b.s.l.lockOff(int(owner)*slots/20), makeTag(owner, 1, 1))
	}
	began := time.Now()
	m := (&recovery{region: b.s.mem}).deadSessions(&b.s.l, dead...)
	lists, _, err := b.lists(t, m)
	took := time.Since(began)
	require.NoError(t, err)
	require.Len(t, slices.Concat(lists...), 17)
	t.Logf("%d slots: %d lists, %v", slots, len(lists), took)
}

// A ticket whose owner was slow is skipped by the target, and passed on once more by
// the owner. That mends itself, and the target does not make it worse.
func TestTicketPassedOnTwice(t *testing.T) {
	b := newBenchOf(Layout{Slots: 1, Size: 8, Clients: 4})
	l, mem := &b.s.l, b.s.mem
	storeWord(mem, l.ticketOff(0), 5<<32|6)
	w := &ticketWatch{lease: time.Second, seen: map[int]served{}}
	now := time.Now()
	for range 1000 {
		now = now.Add(time.Second)
		word := loadWord(mem, l.ticketOff(0))
		_, serving := tickets(word)
		if m := w.look(now, 0, word, loadWord(mem, l.queueOff(0, serving)), func(uint64) bool { return false }); m != nil {
			_, err := b.run(t, m)
			require.NoError(t, err)
		}
	}
	next, serving := tickets(loadWord(mem, l.ticketOff(0)))
	require.Equal(t, next, serving)
	m := &acquire{tags: &tagger{owner: 1, epoch: 1}, queue: new(queue)}
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	require.LessOrEqual(t, len(lists), 2, "of a slot that is free")
}

// Until the target has looked, a client gets by without it.
func TestTicketPassedOnTwiceIsOvertaken(t *testing.T) {
	b := newBenchOf(Layout{Slots: 1, Size: 8, Clients: 4})
	storeWord(b.s.mem, b.s.l.ticketOff(0), 5<<32|6)
	m := &acquire{tags: &tagger{owner: 1, epoch: 1}, queue: new(queue)}
	lists, _, err := b.lists(t, m)
	require.NoError(t, err)
	require.LessOrEqual(t, len(lists), 4)
}

// One server and one agent have a region; its memory is not laid out under them.
func TestOwners(t *testing.T) {
	var mem [64]byte
	require.False(t, owned(mem[:]))
	free, err := claim(mem[:], "server")
	require.NoError(t, err)
	_, err = claim(mem[:8], "server")
	require.ErrorIs(t, err, ErrConfig)
	agent, err := claim(mem[:], "agent")
	require.NoError(t, err)
	free()
	require.True(t, owned(mem[:]))
	agent()
	agent()
	require.False(t, owned(mem[:]))
	free, err = claim(mem[:], "server")
	require.NoError(t, err)
	agent() // of long ago
	free()
}

// The owner of a ticket has a lease to put down whose it is.
func TestTicketOfASlowOwner(t *testing.T) {
	w := &ticketWatch{lease: time.Second, seen: map[int]served{}}
	now, dead := time.Now(), func(uint64) bool { return false }
	look := func(after time.Duration, entry uint64) machine {
		return w.look(now.Add(after), 0, 6<<32|5, entry, dead)
	}
	require.Nil(t, look(0, 0))
	require.Nil(t, look(time.Second-1, 0))
	require.IsType(t, &skipper{}, look(time.Second, 0))
	require.IsType(t, &skipper{}, look(0, skipMark(5)), "who gave up is not waited for")
	require.Nil(t, w.look(now, 0, 6<<32|5, queueEntry(1, 1, 5), func(uint64) bool { return true }))
	require.Nil(t, w.look(now, 0, 5<<32|5, 0, dead))
}
