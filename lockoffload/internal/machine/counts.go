package machine

import "errors"

var (
	// ErrNotAcquired says that the lock was held by others at each try.
	// Nothing was changed.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost says that a lock was no longer the holder's.
	ErrLost = errors.New("lock lost")
	// ErrVersionMismatch says that a record did not have the version that it was compared with.
	// Nothing was changed.
	ErrVersionMismatch = errors.New("record has another version")
)

// Protocol is how an operation is carried out.
type Protocol uint8

const (
	ProtocolRead       Protocol = iota // one READ, without a lock
	ProtocolReadChain                  // lock command, READ and unlock command in one post
	ProtocolReadLocked                 // the unlock command is posted when the READ is complete
	ProtocolTwoStep                    // lock command and READ, then WRITE and unlock command
)

// Counts are the counts of events of a lock. See lockoffload.Stats.
type Counts struct {
	Tries, Acquired, Failed, Waits, Torn, Lost uint64
	// What was carried out, by form.
	Read, ReadChain, ReadHeld, TwoStep uint64
}

func (c *Counts) carriedOut(f Protocol) {
	switch f {
	case ProtocolReadChain:
		c.ReadChain++
	case ProtocolRead:
		c.Read++
	case ProtocolReadLocked:
		c.ReadHeld++
	case ProtocolTwoStep:
		c.TwoStep++
	}
}
