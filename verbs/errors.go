package verbs

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// Errors that a program may act on. They are wrapped with details: test with [errors.Is].
var (
	// ErrUnsupported: this build, device or kernel lacks the feature. It is
	// the standard library's error of that meaning.
	ErrUnsupported = errors.ErrUnsupported
	// ErrClosed: the object, or one that it depends on, was closed.
	ErrClosed = operr.ErrClosed
	// ErrInUse: the object still has children and cannot be closed, or a wait
	// is already under way.
	ErrInUse = operr.ErrInUse
	// ErrNoDevice: the host has no RDMA device, or none of that name.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrNoGID: no entry of the GID table matches the query.
	ErrNoGID = netpath.ErrNoGID
	// ErrQueueFull: the queue has no room for the work request; poll
	// completions first.
	ErrQueueFull = errors.New("queue full")
	// ErrBatchFull: more work requests were added than the batch holds.
	ErrBatchFull = errors.New("batch full")
	// ErrRange: an access outside a memory region, or misaligned for an atomic.
	ErrRange = errors.New("outside the memory region")
	// ErrTooLarge: a message that is longer than the port takes ([Port.MaxMsgSize]), which
	// would end the queue pair: split it.
	ErrTooLarge = operr.ErrTooLarge
	// ErrState: the queue pair is in the wrong state for the call.
	ErrState = errors.New("wrong queue pair state")
	// ErrAttributes: a value or combination of attributes that no device takes.
	ErrAttributes = operr.ErrConfig
	// ErrMemlock: registering the memory would exceed RLIMIT_MEMLOCK.
	ErrMemlock = errors.New("locked-memory limit")
	// ErrOverrun: completions were lost because the completion queue was full.
	ErrOverrun = errors.New("completion queue overrun")
	// ErrUnreachable: there is no route to the peer, it does not respond, or it could not
	// connect.
	ErrUnreachable = operr.ErrUnreachable
	// ErrPathMTU: packets that both ends' links carry are lost on the way, and shorter ones
	// are not.
	ErrPathMTU = errors.New("the path loses long packets: a link on the way has a smaller MTU than both ends")
	// ErrMessage: what the peer has sent, an endpoint, a region, an address or a message of a stream,
	// is malformed, of another version or damaged.
	ErrMessage = errors.New("malformed message")
)

// OpError is the failure of one operation on one object: Op, such as "register memory",
// and Object, such as "qp 0x11" or "rxe0"; Err is a sentinel, an errno, or both joined;
// Detail is what is known of the cause, or empty.
type OpError = operr.Error

// InFlightError is the error of a call when its context ended while the device had its
// requests. It matches the context's error. The requests stay under way: the device may
// still read and write the memory that they name, and they may still be executed. So the
// program must leave that memory alone until Done() is closed. Err() then returns their result, which
// is nil if they were executed. errors.As finds an *InFlightError.
type InFlightError = operr.InFlight

func opError(op, object string, err error, detail ...any) error {
	return operr.New(op, object, err, detail...)
}

// class is an errno with the sentinel that it means.
func class(sentinel, errno error) error { return operr.Class(sentinel, errno) }

// isErrno reports whether err is that errno, as cgo returns it.
func isErrno(err error, errno syscall.Errno) bool { return errors.Is(err, errno) }

// WCError is a work request that failed: its completion's status, and the rest
// of what the completion says.
type WCError struct {
	Status    WCStatus
	VendorErr uint32
	QPNum     uint32
	ID        uint64 // of the work request
}

func (e *WCError) Error() string {
	return fmt.Sprintf("verbs: work request %#x on qp %#x: %s", e.ID, e.QPNum, e.Brief())
}

// Brief returns the text of the error without the request and the queue pair, for errors
// that name these.
func (e *WCError) Brief() string {
	var more []string
	if why := likely[e.Status]; why != "" {
		more = append(more, why)
	}
	if e.VendorErr != 0 {
		more = append(more, fmt.Sprintf("vendor error %#x", e.VendorErr))
	}
	if len(more) == 0 {
		return e.Status.String()
	}
	return e.Status.String() + " (" + strings.Join(more, "; ") + ")"
}

// likely lists the causes of failures that are a program's or a network's, with remedies.
var likely = map[WCStatus]string{
	WCLocalLength:      "the message is longer than the memory of the receive, or than the port's longest message; look at ReceiverConfig.Size",
	WCLocalQPOperation: "the device cannot carry it out: most often a message longer than the memory of the receive; look at ReceiverConfig.Size",
	WCRemoteOperation:  "the peer's device cannot carry it out: most often a message longer than its receive; look at ReceiverConfig.Size and QP.Err there",
	WCLocalProtection:  "local memory outside its region, of a closed region, or of one without LocalWrite",
	WCLocalAccess:      "local memory outside its region, of a closed region, or of one without LocalWrite",
	WCRemoteAccess:     "the peer does not allow it: a wrong or old rkey, an address outside the region, or an access that the region or the queue pair was not made with; look at MRConfig.Access and QPConfig.Access there",
	WCRemoteInvalid:    "the peer refuses it: a message longer than its receive, or an operation that its queue pair was not made for; look at ReceiverConfig.Size, QPConfig.Access and MaxReads there",
	WCRetryExceeded:    "the peer does not acknowledge: it is down, its queue pair has ended, or packets of the path MTU do not get through; look at QP.Err there, and at rdmactl doctor",
	WCRNRRetryExceeded: "the peer had no receive posted; post more there, or raise ConnectConfig.RNRRetries",
}

// Unwrap makes errors.Is(err, verbs.WCRetryExceeded) work.
func (e *WCError) Unwrap() error { return e.Status }

// Error makes a status usable as a target of [errors.Is].
func (s WCStatus) Error() string { return s.String() }

// Is makes errors.Is(err, verbs.ErrUnreachable) work for requests that the peer's device did
// not acknowledge.
func (s WCStatus) Is(target error) bool {
	return target == ErrUnreachable && (s == WCRetryExceeded || s == WCResponseTimeout)
}

// String is libibverbs' text for the status.
func (s WCStatus) String() string {
	if text := cgo.WCStatusString(uint32(s)); text != "" {
		return text
	}
	return fmt.Sprintf("completion status %d", uint32(s))
}
