package dc

import (
	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/verbs"
)

// Parking says what becomes of a session when its initiator context leaves the
// target.
//
// A session that is parked stays as it is, and the same context can go on with it
// later, without a message: the queue pair is reset and connected again, beginning
// with the packet number that the responder context expects next. Two things must
// hold for that.
//
// The responder's message sequence number then is ahead of the requester's. The
// InfiniBand specification has that number count credits, which a responder with
// a shared receive queue does not give; a device that completes requests by it
// would complete them too early.
//
// No late acknowledgement of another session may arrive. Soft-RoCE takes one
// with a higher packet number than it waits for as one of all requests under
// way, even if nothing with that number was sent, but only from the host that
// the queue pair is connected to. New sessions are safe: their numbers are higher
// than those of all before.
//
// A session that is renewed has been closed. The target is asked with the same
// message for another one, of the same contexts: it resets the responder context,
// so that both sequences begin anew, connects it and answers. The next attach then
// needs no message either. The rule about late acknowledgements stays.
type Parking uint8

const (
	// ParkWhereProven parks on devices on which that was tested, Soft-RoCE, and
	// renews on others. A session is not taken up again within a second after the
	// same context left another target on the same host; a new one is opened then.
	// [Initiator.Detach] renews.
	ParkWhereProven Parking = iota
	// ParkAlways parks on any device, and takes sessions up again at any time.
	// It is for networks that lose nothing and keep the order, where no
	// acknowledgement is late.
	ParkAlways
	// ParkNever closes the session whenever its context leaves, as in the
	// patent.
	ParkNever
	// ParkRenewed renews on any device.
	ParkRenewed
)

// keeping is the setting for a device.
func (p Parking) keeping(d *verbs.Device) session.Keeping {
	switch {
	case p == ParkAlways:
		return session.ParkFreely
	case p == ParkNever:
		return session.CloseSessions
	case p == ParkRenewed || !d.SoftRoCE():
		return session.Renew
	}
	return session.Park
}
