package dc

import "time"

// Stats count what an initiator did since it was made. With hardware, Attaches
// counts how often a target was given a DCI, Hits the requests posted at once,
// Waits how often some had to wait for room, Failures the DCIs and streams in
// error, and Live is the targets that have a DCI now; the rest is 0.
//
// There are too few contexts when targets wait for them although each is used:
// Waiting is above 0 whenever one looks, and Waited grows by more than the time
// that passes. Each of these waits costs an eviction, too.
type Stats struct {
	Attaches      uint64        // sessions opened or taken up again
	Resumes       uint64        // those that were kept, and taken up again without a message
	Hits          uint64        // requests to a target that was attached already
	Evictions     uint64        // idle sessions that made room for another target
	Busy          uint64        // busy replies
	NotReady      uint64        // times that a target had no receive, and was left for others
	Waits         uint64        // times that a target had to wait for a context
	Waited        time.Duration // that targets have waited for one, all together
	GaveWay       uint64        // times that a silent target left its context to others
	Failures      uint64        // sessions that failed
	Retransmits   uint64        // control messages sent again
	Lookups       uint64        // questions to services for targets that did not answer
	Malformed     uint64        // control messages that made no sense
	DroppedEvents uint64        // that were not received in time
	Live          int           // sessions with a context now
	Kept          int           // sessions without one, that can be taken up again
	Waiting       int           // targets that wait for a context now
}

// PeerStats are of one target.
type PeerStats struct {
	Posted   uint64        // requests taken
	Ended    uint64        // those that have ended
	Failed   uint64        // those with an error
	Queued   int           // those that wait in the initiator
	Attaches uint64        // sessions opened or taken up again
	Resumes  uint64        // those taken up again
	Failures uint64        // sessions that failed
	Waits    uint64        // times that it had to wait for a context
	Waited   time.Duration // that it has waited for one
	Attached bool          // it has a context now
}

// TargetStats count what a target did since it was made. With hardware there is
// nothing to count.
type TargetStats struct {
	Attaches  uint64 // sessions opened
	Detaches  uint64 // sessions closed by their initiators
	Expired   uint64 // sessions taken back because their initiators fell silent
	Reclaimed uint64 // sessions taken back that were recalled and not given back in time
	Busy      uint64 // busy replies
	Refused   uint64 // wrong access keys, stale messages, failures to set up
	Recalls   uint64 // requests to initiators to detach
	Malformed uint64 // control messages that made no sense
	Dropped   uint64 // control messages for which there was no time or memory
	Live      int    // sessions open now
}

// Stats returns the counters so far.
func (i *Initiator) Stats() Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	var s Stats
	i.be.stats(&s)
	s.DroppedEvents = i.dropped
	return s
}

// QueuePairs returns how many queue pairs the initiator holds, whatever the number of
// targets: one for each initiator context and, in software, one for control
// messages, which it may share.
func (i *Initiator) QueuePairs() int { return i.be.queuePairs() }
