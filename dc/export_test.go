package dc

// Owns tells whether a live session of a target is the initiator's; known is
// false if the session is over.
func (i *Initiator) Owns(t *Target, session uint64) (owns, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.core.sessions[session]
	return s != nil && s.sender == i.core.id, s != nil
}
