package verbs

import (
	"context"
	"iter"

	"github.com/goverbs/goverbs/cgo"
)

// EventType is the kind of an asynchronous event (enum ibv_event_type; InfiniBand
// specification, volume 1, section 11.6.3).
type EventType uint32

const (
	EventCQError         EventType = iota // IBV_EVENT_CQ_ERR: a completion queue overran
	EventQPFatal                          // IBV_EVENT_QP_FATAL: a queue pair failed inside the device
	EventQPRequest                        // IBV_EVENT_QP_REQ_ERR: an invalid request of the peer
	EventQPAccess                         // IBV_EVENT_QP_ACCESS_ERR: an access violation of the peer
	EventEstablished                      // IBV_EVENT_COMM_EST: the first packet came before [StateRTS]
	EventSQDrained                        // IBV_EVENT_SQ_DRAINED: [StateSQD]: the sends under way are done
	eventMigrated                         // IBV_EVENT_PATH_MIG
	eventMigrationFailed                  // IBV_EVENT_PATH_MIG_ERR
	EventDeviceFatal                      // IBV_EVENT_DEVICE_FATAL: the device failed, or was removed
	EventPortActive                       // IBV_EVENT_PORT_ACTIVE
	EventPortError                        // IBV_EVENT_PORT_ERR: the link went down
	EventLIDChange                        // IBV_EVENT_LID_CHANGE
	EventPKeyChange                       // IBV_EVENT_PKEY_CHANGE
	EventSMChange                         // IBV_EVENT_SM_CHANGE
	EventSRQError                         // IBV_EVENT_SRQ_ERR
	EventSRQLimit                         // IBV_EVENT_SRQ_LIMIT_REACHED: fewer receives are left than [SRQ.Arm] said
	EventLastWQE                          // IBV_EVENT_QP_LAST_WQE_REACHED: a queue pair in error takes no more from its shared receive queue
	EventReregister                       // IBV_EVENT_CLIENT_REREGISTER
	EventGIDChange                        // IBV_EVENT_GID_CHANGE: the GID table changed
	eventWQFatal                          // IBV_EVENT_WQ_FATAL
)

// String is libibverbs' text for the event.
func (t EventType) String() string { return cgo.EventTypeString(uint32(t)) }

// Event is an asynchronous event of a device. Of the objects only the one that
// it concerns is set; it may have been closed since.
type Event struct {
	Type   EventType
	Device *Device
	Port   uint8 // of port events
	QP     *QP
	CQ     *CQ
	SRQ    *SRQ
}

// subscriber has the events that an iterator has not yielded yet. None is
// dropped: they are few, and each says something once.
type subscriber struct {
	queue []Event
	more  chan struct{} // has a token when queue or ended changed
}

// Events yields the device's asynchronous events, from the call on, until ctx
// is done or the device is closed:
//
//	for ev := range device.Events(ctx) { ... }
//
// Any number of goroutines may do so; each gets all events.
func (d *Device) Events(ctx context.Context) iter.Seq[Event] {
	r := d.async
	s := r.subscribe()
	// The subscription ends with ctx even if the program never ranges over it.
	stop := context.AfterFunc(ctx, func() { r.unsubscribe(s) })
	return func(yield func(Event) bool) {
		defer stop()
		defer r.unsubscribe(s)
		for {
			ev, state := r.take(s)
			switch {
			case state == taken:
				if ctx.Err() != nil || !yield(ev) {
					return
				}
				continue
			case state == over:
				return
			}
			select {
			case <-s.more:
			case <-ctx.Done():
				return
			}
		}
	}
}

const (
	taken = iota
	empty
	over
)

func (r *asyncReader) subscribe() *subscriber {
	s := &subscriber{more: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscribers[s] = struct{}{}
	return s
}

func (r *asyncReader) take(s *subscriber) (Event, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(s.queue) > 0 {
		ev := s.queue[0]
		s.queue = s.queue[1:]
		return ev, taken
	}
	if r.ended {
		return Event{}, over
	}
	return Event{}, empty
}

func (r *asyncReader) publish(ev Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.subscribers {
		s.queue = append(s.queue, ev)
		s.wake()
	}
}

func (r *asyncReader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for s := range r.subscribers {
		s.wake()
	}
}

func (r *asyncReader) unsubscribe(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subscribers, s)
	s.wake()
}

func (s *subscriber) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
