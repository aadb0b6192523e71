package lockoffload

import (
	"errors"
	"fmt"
)

var (
	// ErrNotAcquired says that the lock was held by others at each try.
	// Nothing was changed.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost says that the lock word no longer carried the holder's tag when
	// it was unlocked: others may have accessed the record meanwhile.
	ErrLost = errors.New("lock lost")
	// ErrOutcomeUnknown says that requests were posted and that no reply told
	// what became of them.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrRecord says that a record's version or checksum does not fit.
	ErrRecord = errors.New("record is torn or damaged")
	// ErrConfig says that an argument is out of range.
	ErrConfig = errors.New("bad configuration")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("closed")
)

func opError(op string, slot int, err error) error {
	return fmt.Errorf("lockoffload: %s slot %d: %w", op, slot, err)
}
