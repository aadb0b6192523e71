package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// Queue is the fair mode of acquire: tickets, served in the order in which
// they were drawn.
//
//	[FETCH_ADD tickets]                          draw one
//	[CMP_SWAP queue, FETCH_ADD tickets + 0, READ queue]   put down whose it is; look who is served
//
// At its turn a client takes the lock as others do, who need not queue: the
// tickets are for the order only, and no mistake in them lets two hold a lock.
// A ticket whose owner gave up is marked in the queue; whoever waits and finds
// the mark at the ticket that is being served passes on. What a dead client
// leaves is marked by the target.
type Queue struct {
	state  queueState
	ticket uint32
	served uint32 // the ticket that was, when it was looked last
	turn   bool
	drawn  bool // there is a ticket
	placed bool // the queue says whose it is
	skip   uint32

	place, look int // of the list
}

type queueState uint8

const (
	queueIdle queueState = iota
	queueDrawn
	queueLooked
	queueLook
	queueSkipped // a mark was taken off
	queueLeft
	queueLeftSkip
	queueDone
)

func (m *Acquire) entry() uint64 {
	return memory.QueueEntry(m.Tags.Owner, m.Tags.Epoch, m.Queue.ticket)
}

func (m *Acquire) queueStep() (Verdict, error) {
	q := m.Queue
	switch q.state {
	case queueDrawn:
		next, serving := memory.Tickets(m.result(q.look))
		*q = Queue{ticket: next, served: serving, drawn: true}
		m.begin()
		if serving != next {
			return m.lookAgain()
		}
		// It is our turn already. Should the entry not find its place, then
		// only the target's help for a dead holder comes later.
		m.cmpSwap(m.L.QueueOff(m.Grant.Slot, q.ticket), 0, m.entry())
		return m.takeTurn()
	case queueLooked:
		return m.looked()
	case queueLook:
		m.begin()
		return m.lookAgain()
	case queueSkipped:
		taken := m.result(q.place) == memory.SkipMark(q.skip)
		m.begin()
		if taken {
			m.fetchAdd(m.L.TicketOff(m.Grant.Slot), memory.PassTicket(q.skip))
		}
		return m.lookAgain()
	}
	m.begin()
	q.look = m.fetchAdd(m.L.TicketOff(m.Grant.Slot), memory.TakeTicket)
	q.state = queueDrawn
	return Post, nil
}

func (m *Acquire) takeTurn() (Verdict, error) {
	m.Queue.turn = true
	m.Far = 0
	m.Grant.fair, m.Grant.ticket = true, m.Queue.ticket
	m.ask()
	return Post, nil
}

func (m *Acquire) lookAgain() (Verdict, error) {
	q, slot := m.Queue, m.Grant.Slot
	q.place = -1
	if !q.placed && int32(q.ticket-q.served) < int32(m.L.Places()) { // else the place is still another one's
		q.place = m.cmpSwap(m.L.QueueOff(slot, q.ticket), 0, m.entry())
	}
	q.look = m.load(m.L.TicketOff(slot))
	m.read(m.L.QueueOff(slot, 0), m.L.QueueAt(), m.L.Places()*8)
	q.state = queueLooked
	return Post, nil
}

func (m *Acquire) looked() (Verdict, error) {
	q, slot := m.Queue, m.Grant.Slot
	_, serving := memory.Tickets(m.result(q.look))
	q.served = serving
	var found uint64
	if q.place >= 0 {
		found = m.result(q.place)
		q.placed = found == 0 || found == m.entry()
	}
	at := memory.LoadWord(m.Mem, m.L.QueueAt()+int(serving%uint32(m.L.Places()))*8)
	switch ahead := int32(q.ticket - serving); {
	case ahead < 0, found == memory.SkipMark(q.ticket): // passed over, or about to be: draw another one
		m.begin()
		if q.placed {
			m.cmpSwap(m.L.QueueOff(slot, q.ticket), m.entry(), 0)
		}
		q.look = m.fetchAdd(m.L.TicketOff(slot), memory.TakeTicket)
		q.state = queueDrawn
		return Post, nil
	case ahead == 0:
		m.begin()
		if !q.placed {
			m.cmpSwap(m.L.QueueOff(slot, q.ticket), 0, m.entry())
		}
		return m.takeTurn()
	case at == memory.SkipMark(serving):
		m.begin()
		q.skip = serving
		q.place = m.cmpSwap(m.L.QueueOff(slot, serving), at, 0)
		q.state = queueSkipped
		return Post, nil
	case !q.placed && memory.IsSkipMark(found) && int32(uint32(found)-serving) < 0:
		// A mark that came too late to be seen.
		m.begin()
		m.cmpSwap(m.L.QueueOff(slot, q.ticket), found, 0)
		return m.lookAgain()
	default:
		m.Far = int(ahead)
		m.Count.Waits++
		q.state = queueLook
		return Sleep, nil
	}
}

// queueLeave marks the ticket, and passes on at once if its turn has come.
func (m *Acquire) queueLeave() (Verdict, error) {
	q, slot := m.Queue, m.Grant.Slot
	switch q.state {
	case queueIdle:
		return Done, nil
	case queueLeft:
		_, serving := memory.Tickets(m.result(q.look))
		if serving != q.ticket {
			q.state = queueDone
			return Done, nil
		}
		m.begin()
		q.place = m.cmpSwap(m.L.QueueOff(slot, q.ticket), memory.SkipMark(q.ticket), 0)
		q.state = queueLeftSkip
		return Post, nil
	case queueLeftSkip:
		taken := m.result(q.place) == memory.SkipMark(q.ticket)
		q.state = queueDone
		m.begin()
		if !taken {
			return Done, nil
		}
		m.fetchAdd(m.L.TicketOff(slot), memory.PassTicket(q.ticket))
		return Last, nil
	case queueDone:
		return Done, nil
	case queueDrawn:
		next, _ := memory.Tickets(m.result(q.look))
		q.ticket = next
	}
	// Whether the entry is there or not yet: one of the two finds its place.
	pass := q.state == queueSkipped && m.result(q.place) == memory.SkipMark(q.skip)
	m.begin()
	if pass {
		m.fetchAdd(m.L.TicketOff(slot), memory.PassTicket(q.skip))
	}
	m.cmpSwap(m.L.QueueOff(slot, q.ticket), m.entry(), memory.SkipMark(q.ticket))
	m.cmpSwap(m.L.QueueOff(slot, q.ticket), 0, memory.SkipMark(q.ticket))
	q.look = m.load(m.L.TicketOff(slot))
	q.state = queueLeft
	return Post, nil
}
