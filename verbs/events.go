package verbs

import (
	"context"
	"iter"

	"github.com/goverbs/goverbs/cgo"
)

// EventType is what an asynchronous event tells (enum ibv_event_type;
// InfiniBand specification, volume 1, section 11.6.3).
type EventType uint32

const (
	EventCQError         EventType = iota // a completion queue overran
	EventQPFatal                          // a queue pair failed inside the device
	EventQPRequest                        // an invalid request of the peer
	EventQPAccess                         // an access violation of the peer
	EventEstablished                      // the first packet came before [StateRTS]
	EventSQDrained                        // [StateSQD]: the sends under way are done
	EventMigrated                         //
	EventMigrationFailed                  //
	EventDeviceFatal                      // the device failed, or was removed
	EventPortActive                       //
	EventPortError                        // the link went down
	EventLIDChange                        //
	EventPKeyChange                       //
	EventSMChange                         //
	EventSRQError                         //
	EventSRQLimit                         // fewer receives are left than [SRQ.Arm] said
	EventLastWQE                          // a queue pair in error takes no more from its shared receive queue
	EventReregister                       //
	EventGIDChange                        // the GID table changed
	EventWQFatal                          //
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
	s := &subscriber{more: make(chan struct{}, 1)}
	r.mu.Lock()
	r.subscribers[s] = struct{}{}
	r.mu.Unlock()
	// The subscription ends with ctx even if nobody ever ranges over it.
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
