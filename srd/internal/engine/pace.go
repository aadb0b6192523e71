package engine

import "time"

// Times that are a few packets' on a host that takes long for one are learned there from
// what its device takes. Round trips and rates do not tell a slow host from a network that
// many share; how long the device has a packet that is sent does.
const (
	// timedPackets is how many packets a burst has at least whose time is that of so many
	// packets. What fewer take is mostly the time until somebody looks.
	timedPackets = 8
	// targetPackets is how many packets' time in queues is no congestion, if that is longer
	// than Target, and targetMost how many times Target it may be.
	targetPackets = 64
	targetMost    = 10
	// waitPackets is how many packets' time a response waits for others, if that is longer
	// than AckDelay, and not longer than MinTimeout, by which all timers are longer.
	waitPackets = 8
)

// Took tells how long the device had n packets, at least one, that were handed to it at
// once, until they were known to be gone.
func (e *Engine) Took(n int, d time.Duration) {
	each := max(d, 0) / time.Duration(n)
	e.anyEach = learn(e.anyEach, each)
	e.ackDelay = max(e.cfg.AckDelay, min(waitPackets*e.anyEach, e.cfg.MinTimeout))
	switch {
	case n >= timedPackets:
		e.each = learn(e.each, each)
	case d < e.each:
		e.each = max(d, 0) // of one of them, however few they are
	default:
		return
	}
	e.target = min(max(e.cfg.Target, targetPackets*e.each), targetMost*e.cfg.Target)
}

// learn takes what is shorter at once: what is longer may be the time until somebody looked.
func learn(old, d time.Duration) time.Duration {
	if d > old {
		d = old + (d-old)/4
	}
	return d
}

// waits notes how long a peer let the response to a packet wait behind which it expected no other:
// it takes no longer than AckDelay, which a deployment has in common, unless its device is slow.
func (n *network) waits(d time.Duration) {
	if d < n.delay {
		d = n.delay - (n.delay-d)/8
	}
	n.delay = d
}

// peerDelay is how long a peer lets a response wait, as it has shown.
func (e *Engine) peerDelay(n *network) time.Duration {
	return max(e.cfg.AckDelay, min(n.delay, e.cfg.MinTimeout))
}

// AckDelay is how long a response waits for others now.
func (e *Engine) AckDelay() time.Duration { return e.ackDelay }
