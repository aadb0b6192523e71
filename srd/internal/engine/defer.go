package engine

// defers tells whether a flow that has more to send than it may waits until it may send more at
// once: half of what may be under way, or a burst. A response will come, since packets are
// under way. Each few packets would have a response of their own otherwise, which again lets few
// go, and a driver's call.
func (e *Engine) defers(f *txFlow, room int) bool {
	p := f.p
	n := e.network(p)
	if n.sentAt == e.now || room >= min(int(p.flying), longestBurst) || e.exceeds(f, room) <= room || e.someLose(n) {
		n.sentAt = e.now // what follows goes with it
		return false
	}
	return true
}

// exceeds answers how many packets of a flow have no number yet, or any number above n.
func (e *Engine) exceeds(f *txFlow, n int) (waiting int) {
	for i := f.head; i != none && waiting <= n; i = e.messages[i].next {
		waiting += int(e.messages[i].count - e.messages[i].sent)
	}
	return waiting
}

// someLose tells whether a path loses more than others, or is out of use for it. Then responses
// are worth what they cost: they tell by which paths they come. One that is suspect is being
// found out by a probe.
func (e *Engine) someLose(n *network) bool {
	for i := range uint8(e.cfg.Paths) {
		if n.paths[i].retired || n.loses(i) {
			return true
		}
	}
	return false
}
