package engine

import "time"

// On a slow host the times that should span a few packets are learned from the time that its
// device takes for one. Round trips and rates do not distinguish a slow host from a shared
// network; the time for which the device has a packet does.
const (
	// timedPackets is the least length of a burst that is timed. The time of fewer
	// packets is mostly the time until the completion is polled.
	timedPackets = 8
	// targetPackets is how many packets' time in queues is no congestion, if that is longer
	// than Target, and maxTarget how many times Target it may be.
	targetPackets = 64
	maxTarget     = 10
	// waitPackets is how many packets' time a response waits for others, if that is longer
	// than AckDelay, and not longer than MinTimeout, by which all timers are longer.
	waitPackets = 8
)

// Took records that n packets, at least one, were handed to the device at once, and that it took
// d until they were known to be sent.
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
	e.target = min(max(e.cfg.Target, targetPackets*e.each), maxTarget*e.cfg.Target)
}

// learn returns the new estimate: a shorter d at once, a longer one by a quarter, since it may
// include the time until the completion was polled.
func learn(old, d time.Duration) time.Duration {
	if d > old {
		d = old + (d-old)/4
	}
	return d
}

// waits records the peer's response delay for the last packet of a burst. It is no longer than
// AckDelay, which a deployment has in common, unless its device is slow.
func (n *network) waits(d time.Duration) {
	if d < n.delay {
		d = n.delay - (n.delay-d)/8
	}
	n.delay = d
}

// peerDelay returns how long a peer delays a response: as measured, up to MinTimeout, but at
// least AckDelay.
func (e *Engine) peerDelay(n *network) time.Duration {
	return max(e.cfg.AckDelay, min(n.delay, e.cfg.MinTimeout))
}

// AckDelay returns how long a response waits for others now.
func (e *Engine) AckDelay() time.Duration { return e.ackDelay }
