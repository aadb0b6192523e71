package lockoffload

// Request is the message that a caller sends for the chain.
func (ch *Chain) Request(dst []byte, client, seq uint64) int {
	return ch.request(dst, client, seq, 0, 0)
}

// ReplyStatus is what a reply says, as an error of [Caller.Do].
func ReplyStatus(msg []byte) (seq uint64, status error, err error) {
	r, err := decodeReply(msg)
	return r.seq, statusError(r.status), err
}

// LeftLocked takes a slot's lock as an agent does that fails then.
func (r *Region) LeftLocked(slot int) error {
	return r.mr.Store64(r.lockOff(slot), makeTag(agentOwner, 1, 77))
}
