package engine

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Assembly is a message that has not arrived completely, or one that waits for the messages
// before it.
type Assembly struct {
	Next     *Assembly // of its flow, which began before it
	Number   uint32    // of the message, or of its first packet
	Count    uint32    // packets that it has
	Got      uint32    // and that came
	Total    uint32    // bytes
	Fragment uint16
	Now      bool          // its sender waits
	Heard    time.Duration // when a packet came last
	Bytes    []byte
	Has      []uint64 // the packets that came, if they may come twice
}

// Whole reports whether a message has arrived completely.
func (a *Assembly) Whole() bool { return a.Got == a.Count }

// Find returns the message with a number, of a flow with a as its last one; or nil.
func (a *Assembly) Find(number uint32) *Assembly {
	for a != nil && a.Number != number {
		a = a.Next
	}
	return a
}

// Assemblies keeps what messages have used for the next ones.
type Assemblies struct{ free *Assembly }

// Begin gives a message its memory, and puts it into the list of a flow.
func (s *Assemblies) Begin(flow **Assembly, number, total uint32, fragment uint16, bytes []byte, now time.Duration) *Assembly {
	a := s.free
	if a != nil {
		s.free = a.Next
	} else {
		a = new(Assembly)
	}
	*a = Assembly{Next: *flow, Number: number, Count: wire.Count(total, fragment), Total: total, Fragment: fragment, Heard: now, Bytes: bytes[:total], Has: a.Has[:0]}
	*flow = a
	return a
}

// End takes a message out of the list of a flow, and gives memory that it has to the host.
func (s *Assemblies) End(flow **Assembly, a *Assembly, h Host) {
	for at := flow; *at != nil; at = &(*at).Next {
		if *at == a {
			*at = a.Next
			break
		}
	}
	if a.Bytes != nil {
		h.Drop(a.Bytes)
		a.Bytes = nil
	}
	a.Next, s.free = s.free, a
}
