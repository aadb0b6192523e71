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
type Parking uint8

const (
	// ParkWhereProven parks on devices on which that was tested: Soft-RoCE.
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
