package dc

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Errors on which a program decides. They come wrapped in detail: test with
// [errors.Is]. Errors of package verbs come through as they are.
var (
	// ErrClosed: the initiator, the target or the peer was closed.
	ErrClosed = verbs.ErrClosed
	// ErrAddress: not an address of a target, or of another version.
	ErrAddress = errors.New("malformed target address")
	// ErrAccessKey: the target refused the access key.
	ErrAccessKey = errors.New("wrong access key")
	// ErrUnreachable: the target did not answer connect packets in time.
	ErrUnreachable = errors.New("target does not answer")
	// ErrSession: the session ended under the request: the target died, was
	// restarted or took its responder context back, or an earlier request of
	// the session failed; with hardware, an earlier request in the same DCI or
	// stream failed, perhaps another target's. Whether the request was carried out is not known; it
	// was not carried out twice, and will not be later.
	ErrSession = errors.New("session lost")
	// ErrRefused: the target could not set up a session.
	ErrRefused = errors.New("refused by the target")
	// ErrQueueFull: too many requests wait for this target; poll completions
	// first.
	ErrQueueFull = verbs.ErrQueueFull
	// ErrInUse: there are requests under way.
	ErrInUse = verbs.ErrInUse
)

// OpError is the failure of one operation on one object.
type OpError struct {
	Op     string
	Object string
	Err    error
}

func (e *OpError) Error() string { return fmt.Sprintf("dc: %s %s: %v", e.Op, e.Object, e.Err) }

func (e *OpError) Unwrap() error { return e.Err }

func opError(op, object string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{op, object, err}
}
