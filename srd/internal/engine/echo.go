package engine

import "time"

// An echo that comes again, as a network may double it or an unauthenticated peer replay it, says nothing: it
// is no round trip, begins no timer anew, and does not show that a path works. That it is the
// first one shows by what it echoes, sent later than what was echoed of the path before, or by
// what comes with it: a packet is settled. Of what arrives after it was taken for lost, and was
// settled by its successor, neither is true: such echoes, with the round trips that timers
// lack, count as often as packets of the path were taken for lost.

const maxStrays = 16

// newer records the echo of a packet that was sent age ago, and reports whether that was later
// than all packets of the path echoed before.
func (e *Engine) newer(x *path, age time.Duration) bool {
	at := e.Now.Truncate(time.Microsecond) - age
	if at <= x.echoedAt {
		return false
	}
	x.echoedAt = at
	return true
}

// strays records that a packet of a path was taken for lost; its echo may still come.
func (x *path) strays() { x.stray = min(x.stray+1, maxStrays) }

// strayed reports whether an echo may be that of such a packet, and counts it as one.
func (x *path) strayed() bool {
	if x.stray == 0 {
		return false
	}
	x.stray--
	return true
}
