package dc

import "github.com/goverbs/goverbs/verbs"

// Parking says whether a session is kept when its initiator context leaves the
// target, so that the same context can go on with it later, without a message.
//
// The queue pair is reset and connected again, beginning with the packet number
// that the responder context expects next. The responder's message sequence
// number then is ahead of the requester's. The InfiniBand specification has that
// number count credits, which a responder with a shared receive queue does not
// give; a device that completes requests by it would complete them too early.
//
// Soft-RoCE takes an acknowledgement with a higher packet number than it waits
// for as one of all requests under way, even if nothing with that number was
// sent. One of another session to the same host that comes late can then
// complete a request of a session that was taken up again before it is carried
// out; if its packet is lost, it never is. Acknowledgements come late where
// packets are sent again, doubled or overtaken: there, sessions must not be
// parked on Soft-RoCE. New sessions are safe: their numbers are higher than
// those of all before.
type Parking uint8

const (
	// ParkWhereProven parks on devices on which that was tested: Soft-RoCE, on
	// networks that lose nothing and keep the order.
	ParkWhereProven Parking = iota
	// ParkAlways parks on any device.
	ParkAlways
	// ParkNever closes the session whenever its context leaves, as in the
	// patent.
	ParkNever
)

func (p Parking) on(d *verbs.Device) bool {
	return p == ParkAlways || p == ParkWhereProven && d.SoftRoCE()
}
