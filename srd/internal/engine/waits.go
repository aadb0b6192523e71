package engine

import (
	"slices"
	"time"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Wait is a message that waits for memory at its receiver.
type Wait struct {
	Peer     uint32 // slot of the sender
	Number   uint32 // of the message, or of its first packet
	Total    uint32
	Fragment uint16
	Service  uint8
	asked    time.Duration // when a packet came last
}

// Waits are the messages that wait for memory, the oldest first: at most one of each flow. What
// comes while others wait is behind them, whatever its length.
type Waits []*Wait

const (
	// AskAgain is how long a sender waits at most before it sends packets of a message again
	// that waits for memory: its receiver calls for them when there is some.
	AskAgain = session.DefaultPeerTimeout / 32
	waitAge  = 4 * AskAgain // without a packet, after which a sender is passed over
)

// Add has a message wait at the place of its flow, which is *at, or behind all others. Of a
// flow the first message waits.
func (q *Waits) Add(at **Wait, peer, number uint32, t *wire.Part, now time.Duration) {
	w := *at
	if w == nil {
		w = &Wait{Peer: peer, Number: number}
		*q, *at = append(*q, w), w
	}
	if int32(number-w.Number) <= 0 {
		w.Number, w.Total, w.Fragment, w.Service = number, t.Total, t.Fragment, t.Service
	}
	w.asked = now
}

// Remove has a flow's message wait no more, if it is the one with a number.
func (q *Waits) Remove(at **Wait, number uint32) {
	if w := *at; w != nil && w.Number == number {
		*q = slices.DeleteFunc(*q, func(x *Wait) bool { return x == w })
		*at = nil
	}
}

// Next takes the oldest message out if there is memory for it, or hardly will be, and returns
// that memory. The sender is told to send again: what has no memory is refused then.
func (q *Waits) Next(h Host, now time.Duration) (w *Wait, room []byte) {
	if len(*q) == 0 {
		return nil, nil
	}
	w = (*q)[0]
	if now-w.asked < waitAge {
		if room = h.Room(int(w.Total)); room == nil && h.Soon(int(w.Total)) {
			return nil, nil
		}
	}
	*q = slices.Delete(*q, 0, 1)
	return w, room
}
