package dc

// Stats count what an initiator did since it was made. With hardware, Attaches
// counts how often a target was given a DCI, Hits the requests posted at once,
// Waits how often some had to wait for room, Failures the DCIs and streams in
// error, and Live is the targets that have a DCI now; the rest is 0.
type Stats struct {
	Attaches    uint64 // sessions opened or taken up again
	Resumes     uint64 // those taken up again, without a message
	Hits        uint64 // requests whose target was attached already
	Evictions   uint64 // idle sessions that made room for another target
	Busy        uint64 // busy answers
	Waits       uint64 // times that a target had to be connected to first
	Failures    uint64 // sessions that failed
	Retransmits uint64 // control messages sent again
	Lookups     uint64 // questions to services for targets that did not answer
	Stale       uint64 // control messages of sessions that are over
	Rubbish     uint64 // control messages that made no sense
	Live        int    // sessions with a context now
	Parked      int    // sessions without one, that can be taken up again
}

// TargetStats count what a target did since it was made. With hardware there is
// nothing to count.
type TargetStats struct {
	Attaches uint64 // sessions opened
	Detaches uint64 // sessions closed by their initiators
	Expired  uint64 // sessions taken back because their initiators fell silent
	Busy     uint64 // busy answers
	Refused  uint64 // wrong access keys, stale messages, failures to set up
	Recalls  uint64 // requests to initiators to detach
	Rubbish  uint64 // control messages that made no sense
	Live     int    // sessions open now
}

// QueuePairs is how many queue pairs the initiator holds, whatever the number of
// targets: one for each initiator context and, in software, one for control
// messages.
func (i *Initiator) QueuePairs() int {
	if i.hw != nil {
		return len(i.hw.dcis)
	}
	return len(i.lanes) + 1
}
