package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// queue is the fair mode of acquire: tickets, served in the order in which
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
type queue struct {
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

func (m *acquire) entry() uint64 {
	return memory.QueueEntry(m.tags.Owner, m.tags.Epoch, m.queue.ticket)
}

func (m *acquire) queueStep() (verdict, error) {
	q := m.queue
	switch q.state {
	case queueDrawn:
		next, serving := memory.Tickets(m.result(q.look))
		*q = queue{ticket: next, served: serving, drawn: true}
		m.begin()
		if serving != next {
			return m.lookAgain()
		}
		// It is our turn already. Should the entry not find its place, then
		// only the target's help for a dead holder comes later.
		m.cmpSwap(m.l.QueueOff(m.grant.slot, q.ticket), 0, m.entry())
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
			m.fetchAdd(m.l.TicketOff(m.grant.slot), memory.PassTicket(q.skip))
		}
		return m.lookAgain()
	}
	m.begin()
	q.look = m.fetchAdd(m.l.TicketOff(m.grant.slot), memory.TakeTicket)
	q.state = queueDrawn
	return post, nil
}

func (m *acquire) takeTurn() (verdict, error) {
	m.queue.turn = true
	m.far = 0
	m.grant.fair, m.grant.ticket = true, m.queue.ticket
	m.ask()
	return post, nil
}

func (m *acquire) lookAgain() (verdict, error) {
	q, slot := m.queue, m.grant.slot
	q.place = -1
	if !q.placed && int32(q.ticket-q.served) < int32(m.l.Places()) { // else the place is still another one's
		q.place = m.cmpSwap(m.l.QueueOff(slot, q.ticket), 0, m.entry())
	}
	q.look = m.load(m.l.TicketOff(slot))
	m.read(m.l.QueueOff(slot, 0), m.l.QueueAt(), m.l.Places()*8)
	q.state = queueLooked
	return post, nil
}

func (m *acquire) looked() (verdict, error) {
	q, slot := m.queue, m.grant.slot
	_, serving := memory.Tickets(m.result(q.look))
	q.served = serving
	var found uint64
	if q.place >= 0 {
		found = m.result(q.place)
		q.placed = found == 0 || found == m.entry()
	}
	at := memory.LoadWord(m.mem, m.l.QueueAt()+int(serving%uint32(m.l.Places()))*8)
	switch ahead := int32(q.ticket - serving); {
	case ahead < 0, found == memory.SkipMark(q.ticket): // passed over, or about to be: draw another one
		m.begin()
		if q.placed {
			m.cmpSwap(m.l.QueueOff(slot, q.ticket), m.entry(), 0)
		}
		q.look = m.fetchAdd(m.l.TicketOff(slot), memory.TakeTicket)
		q.state = queueDrawn
		return post, nil
	case ahead == 0:
		m.begin()
		if !q.placed {
			m.cmpSwap(m.l.QueueOff(slot, q.ticket), 0, m.entry())
		}
		return m.takeTurn()
	case at == memory.SkipMark(serving):
		m.begin()
		q.skip = serving
		q.place = m.cmpSwap(m.l.QueueOff(slot, serving), at, 0)
		q.state = queueSkipped
		return post, nil
	case !q.placed && memory.IsSkipMark(found) && int32(uint32(found)-serving) < 0:
		// A mark that came too late to be seen.
		m.begin()
		m.cmpSwap(m.l.QueueOff(slot, q.ticket), found, 0)
		return m.lookAgain()
	default:
		m.far = int(ahead)
		m.count.Waits++
		q.state = queueLook
		return sleep, nil
	}
}

// queueLeave marks the ticket, and passes on at once if its turn has come.
func (m *acquire) queueLeave() (verdict, error) {
	q, slot := m.queue, m.grant.slot
	switch q.state {
	case queueIdle:
		return done, nil
	case queueLeft:
		_, serving := memory.Tickets(m.result(q.look))
		if serving != q.ticket {
			q.state = queueDone
			return done, nil
		}
		m.begin()
		q.place = m.cmpSwap(m.l.QueueOff(slot, q.ticket), memory.SkipMark(q.ticket), 0)
		q.state = queueLeftSkip
		return post, nil
	case queueLeftSkip:
		taken := m.result(q.place) == memory.SkipMark(q.ticket)
		q.state = queueDone
		m.begin()
		if !taken {
			return done, nil
		}
		m.fetchAdd(m.l.TicketOff(slot), memory.PassTicket(q.ticket))
		return last, nil
	case queueDone:
		return done, nil
	case queueDrawn:
		next, _ := memory.Tickets(m.result(q.look))
		q.ticket = next
	}
	// Whether the entry is there or not yet: one of the two finds its place.
	pass := q.state == queueSkipped && m.result(q.place) == memory.SkipMark(q.skip)
	m.begin()
	if pass {
		m.fetchAdd(m.l.TicketOff(slot), memory.PassTicket(q.skip))
	}
	m.cmpSwap(m.l.QueueOff(slot, q.ticket), m.entry(), memory.SkipMark(q.ticket))
	m.cmpSwap(m.l.QueueOff(slot, q.ticket), 0, memory.SkipMark(q.ticket))
	q.look = m.load(m.l.TicketOff(slot))
	q.state = queueLeft
	return post, nil
}
