package dc

// Owns tells whether a live session of a target is the initiator's; known is
// false if the session is over.
func (i *Initiator) Owns(t *Target, session uint64) (owns, known bool) {
	sender, known := t.be.owner(session)
	s, ok := i.be.(*software)
	return ok && sender == s.core.ID, known
}
