package dc

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Errors on which a program decides. They come wrapped in detail: test with
// [errors.Is]. Errors of package verbs come through as they are.
var (
	// ErrClosed: the initiator, the target or the peer was closed.
	ErrClosed = verbs.ErrClosed
	// ErrAddress: not an address of a target, or of another version.
	ErrAddress = wire.ErrAddress
	// ErrAccessKey: the target does not reply, and its address was made for
	// another access key.
	ErrAccessKey = errors.New("wrong access key")
	// ErrUnreachable: the target did not reply to connect packets in time, or with
	// [ErrSession] to the request itself; with hardware, which connects by itself, it comes
	// with ErrSession only.
	ErrUnreachable = verbs.ErrUnreachable
	// ErrSession: the session ended under the request: the target died, was
	// restarted or took its responder context back, had no receive for a long WRITE with
	// immediate ([ErrNoReceive]), or an earlier request of
	// the session failed; with hardware, an earlier request in the same DCI or
	// stream failed, perhaps another target's. Or the device of this end found fault
	// with the memory of an atomic, or of a WRITE or message of more than 256 bytes,
	// when it may have done a part. Whether the request was carried out is not known;
	// it was not carried out twice, and will not be later.
	ErrSession = errors.New("session lost")
	// ErrNoReceive: a WRITE with immediate of more than one packet has found no receive at
	// the target, which is known when all packets but the last have been written. It comes
	// with [ErrSession], and the request is not repeated. Other messages wait for a receive.
	ErrNoReceive = errors.New("the target has no receive; all but the last packet was written")
	// ErrRefused: the target could not set up a session.
	ErrRefused = session.ErrRefused
	// ErrNoContexts: no queue pair of the initiator works any more.
	ErrNoContexts = session.ErrNoContexts
	// ErrQueueFull: too many requests wait for this target. There is an
	// [EventRoom] when half of them have gone.
	ErrQueueFull = verbs.ErrQueueFull
	// ErrInUse: there are requests under way.
	ErrInUse = verbs.ErrInUse
	// ErrTimeout: the request's [Request.Timeout] was over before it was posted to
	// the device; it was not carried out. The end of a context has the context's error.
	ErrTimeout = operr.ErrTimeout
	// ErrCanceled: the request was taken back by [Initiator.Cancel]; it was not
	// carried out.
	ErrCanceled = operr.ErrCanceled

	errNotMine = fmt.Errorf("%w: the peer is another initiator's", verbs.ErrAttributes)
)

// OpError is the failure of one operation on one object, see [verbs.OpError].
type OpError = verbs.OpError

func opError(op, object string, err error) error { return operr.In("dc", op, object, err) }

// requestError distinguishes what a request itself was refused for, so that nothing of it
// was carried out, from what befell its session.
func requestError(e *entry, w *verbs.WC) error {
	err, known := w.Err(), true
	switch w.Status() {
	case verbs.WCFlushed, verbs.WCRetryExceeded, verbs.WCRemoteAborted, verbs.WCFatal, verbs.WCGeneral, verbs.WCResponseTimeout,
		verbs.WCRemoteOperation, verbs.WCBadResponse:
		known = false
	case verbs.WCLocalLength, verbs.WCLocalQPOperation, verbs.WCLocalProtection, verbs.WCLocalAccess:
		// The device of this end looks at the memory for the response when that comes, and
		// at that of a packet when it sends it.
		known = e.Op == Read || e.Op < FetchAdd && e.packets(smallestMTU) == 1
	}
	if w.Status() == verbs.WCRNRRetryExceeded && !e.takesReceiveFirst(smallestMTU) {
		err, known = fmt.Errorf("%w: %w", ErrNoReceive, err), false
	}
	if w.Status() == verbs.WCRetryExceeded {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if !known {
		err = fmt.Errorf("%w: %w", ErrSession, err)
	}
	return opError(e.Op.String()+" to", e.peer.addr.String(), err)
}

const smallestMTU = 256
