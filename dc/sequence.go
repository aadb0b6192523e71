package dc

// The packets of a context's sessions are numbered upwards, those of a new
// session behind all before it. A late acknowledgement of an earlier session
// then has a number that the queue pair knows as acknowledged; Soft-RoCE would
// take a higher one for the acknowledgement of everything under way. A session
// that is taken up again goes back to its own numbers: see [Parking].

// firstPSN is the number of a new session's first packet: behind all that the
// queue pair has sent, and not easily guessed.
func (c *initiatorCore) firstPSN(x *initiatorContext) uint32 {
	x.psn = (x.psn + 1 + c.random()%128) & 0xffffff
	return x.psn
}

// retire notes, when a context leaves its target, which numbers were used.
func (x *initiatorContext) retire() {
	if int32((x.session.psn-x.psn)<<8) > 0 {
		x.psn = x.session.psn
	}
}
