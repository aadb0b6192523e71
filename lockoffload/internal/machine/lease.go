package machine

import "time"

// Lease is what the target knows of one client's lease, from the word in which the client
// counts its heartbeats. The client's lease runs from the posting of a heartbeat, if that
// is acknowledged. The target counts from when it sees the heartbeat, which is later,
// and waits half a lease longer, since clocks run apart.
//
// A heartbeat may come in after the look that found none and before the client's queue pair
// is fenced. It may be acknowledged, and then its lease runs. So the word is looked at once
// more when nothing can come in any more.
type Lease struct {
	length, first time.Duration
	word          uint64
	seen          time.Time // not before word was posted
	alive         bool      // there was a heartbeat
}

// Goodbye in the heartbeat word ends a session at once.
const Goodbye = 1<<64 - 1

// NewLease returns the lease of a client that is admitted at now, with 0 in its word. Its
// first heartbeat may take as long as first.
func NewLease(length, first time.Duration, now time.Time) Lease {
	return Lease{length: length, first: first, seen: now}
}

// LeaseState is the result of [Lease.Look].
type LeaseState uint8

const (
	LeaseRuns LeaseState = iota
	LeaseOver            // the client was not heard of for too long
	LeaseLeft            // the client said goodbye
)

// Look takes the value of the heartbeat word and returns the state of the lease. now must
// not be before the word was read.
func (l *Lease) Look(word uint64, now time.Time) LeaseState {
	if word != l.word {
		l.word, l.seen, l.alive = word, now, true
	}
	limit := LeaseLimit(l.length)
	if !l.alive {
		limit = max(limit, l.first)
	}
	switch {
	case l.word == Goodbye:
		return LeaseLeft
	case now.Sub(l.seen) > limit:
		return LeaseOver
	}
	return LeaseRuns
}

// LeaseLimit returns how long the target waits for the end of a lease.
func LeaseLimit(length time.Duration) time.Duration { return length + length/2 }

// Fenced takes the value of the heartbeat word when no request of the client is executed
// any more, and a time that is not before that. It returns when the lease has run out: now
// if the client has left or never had one, else a time that is later if a heartbeat came in
// after the last look.
func (l *Lease) Fenced(word uint64, now time.Time) time.Time {
	if word != l.word {
		l.word, l.seen, l.alive = word, now, true
	}
	if !l.alive || word == Goodbye {
		return now
	}
	return l.seen.Add(LeaseLimit(l.length))
}

// KeptLease is a lease as its client knows it, which relies on its locks until it is over.
// It runs from the posting of the last heartbeat that was acknowledged: the client cannot
// know when that came in.
type KeptLease struct {
	length        time.Duration
	posted, until time.Time
}

// NewKeptLease returns the lease of a client that posts its first heartbeat at now.
func NewKeptLease(length time.Duration, now time.Time) KeptLease {
	return KeptLease{length: length, posted: now, until: now.Add(length)}
}

// Posted notes that a heartbeat is about to be posted; the previous one must have been
// acknowledged.
func (k *KeptLease) Posted(now time.Time) { k.posted = now }

// Acknowledged notes that the last heartbeat posted has been acknowledged.
func (k *KeptLease) Acknowledged() { k.until = k.posted.Add(k.length) }

// Until returns the time at which the lease is over.
func (k *KeptLease) Until() time.Time { return k.until }
