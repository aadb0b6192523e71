package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Errors of connections beside those of package verbs.
var (
	// ErrDisconnected: the peer ended the connection, or this side did.
	ErrDisconnected = errors.New("disconnected")
	// ErrDeviceRemoved: the device was unplugged or its driver unloaded; close
	// everything that was made on it.
	ErrDeviceRemoved = errors.New("device removed")
)

// RejectedError is the reply of a peer that refuses the connection, or of a host without
// a listener at the port; the latter matches [syscall.ECONNREFUSED].
type RejectedError struct {
	// Reason is a code of the InfiniBand specification, volume 1, section
	// 12.6.7.2: 28 is the listening program's decision, 8 means that there is
	// none.
	Reason int
	// PrivateData is what the peer's program sent along. Its end is padded
	// with zeros to 148 bytes (136 for datagrams).
	PrivateData []byte
}

const (
	rejectNoListener = 8
	rejectConsumer   = 28

	sidrUnsupported = 1
)

func (e *RejectedError) Error() string {
	switch e.Reason {
	case rejectNoListener:
		return "rejected: no listener there"
	case rejectConsumer:
		return "rejected by the peer's program"
	}
	return fmt.Sprintf("rejected for reason %d", e.Reason)
}

// Unwrap makes a port without a listener match [syscall.ECONNREFUSED].
func (e *RejectedError) Unwrap() error {
	if e.Reason == rejectNoListener {
		return syscall.ECONNREFUSED
	}
	return nil
}

// stepError is what an event says went wrong.
func stepError(ev *cgo.CMEvent) error {
	var errno error = syscall.Errno(-ev.Status)
	switch typ := event(ev.Type); {
	case typ == eventRejected:
		return &RejectedError{Reason: int(ev.Status), PrivateData: privateData(ev)}
	case typ == eventUnreachable && ev.Status > 0:
		// Datagram services answer with a status of their own numbering.
		reason := rejectConsumer
		if ev.Status == sidrUnsupported {
			reason = rejectNoListener
		}
		return &RejectedError{Reason: reason, PrivateData: privateData(ev)}
	case typ == eventUnreachable, typ == eventAddrError, typ == eventRouteError:
		return operr.Class(verbs.ErrUnreachable, errno)
	case ev.Status < 0:
		return fmt.Errorf("%v: %w", typ, errno)
	default:
		return fmt.Errorf("%v with status %d", typ, ev.Status)
	}
}

func privateData(ev *cgo.CMEvent) []byte {
	return append([]byte(nil), ev.PrivateData[:ev.PrivateLen]...)
}
