package engine

// defers reports whether a flow with more to send than room should wait until it may send more
// at once: as much as is under way, or a burst. A response will come, since packets are
// under way. Otherwise every few packets would have a response of their own, which again lets
// few go, and a driver call.
func (e *Engine) defers(f *txFlow, room int) bool {
	p := f.p
	n := e.network(p)
	if n.sentAt == e.Now || room >= min(int(p.flying), longestBurst) || e.exceeds(f, room) <= room || e.someLose(n) {
		n.sentAt = e.Now // what follows goes with it
		return false
	}
	return true
}

// exceeds returns how many packets of a flow have no number yet, or any value above n.
func (e *Engine) exceeds(f *txFlow, n int) (waiting int) {
	for i := f.Head; i != none && waiting <= n; i = e.links.Next(i) {
		waiting += int(e.messages[i].count - e.messages[i].sent)
	}
	return waiting
}

// someLose reports whether a path loses more than others, or is retired for it. Then responses
// are worth their cost: they show by which paths packets arrive. Suspect paths do not count: a
// probe tests them.
func (e *Engine) someLose(n *network) bool {
	for i := range uint8(e.cfg.Paths) {
		if n.paths[i].retired || n.loses(i) {
			return true
		}
	}
	return false
}
