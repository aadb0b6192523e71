package dc

import "fmt"

// EventKind is the kind of an [Event].
type EventKind uint8

const (
	// EventSessionLost: the session with the peer has broken off. Err says why: it is
	// that of the first request that failed, or matches [ErrSession]. Requests behind
	// that one, or under way, fail with [ErrSession].
	EventSessionLost EventKind = iota
	// EventUnreachable: the peer could not be connected to; requests that waited
	// have failed with Err.
	EventUnreachable
	// EventRoom: half of the requests have gone that made Post return
	// [ErrQueueFull].
	EventRoom
)

func (k EventKind) String() string {
	switch k {
	case EventSessionLost:
		return "session lost"
	case EventUnreachable:
		return "unreachable"
	case EventRoom:
		return "room again"
	}
	return fmt.Sprintf("event %d", k)
}

// Event is something that happened to a peer.
type Event struct {
	Kind EventKind
	Peer *Peer
	Err  error
}

// eventsKept is how many events wait to be taken.
const eventsKept = 256

// Events returns the channel of what happens to the initiator's peers. Events that are not
// received are dropped when there are too many, and counted in
// [Stats.DroppedEvents]. [Initiator.Close] closes the channel.
func (i *Initiator) Events() <-chan Event { return i.events }

func (i *Initiator) event(e Event) {
	if i.closed {
		return
	}
	select {
	case i.events <- e:
	default:
		i.dropped++
	}
}
