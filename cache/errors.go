package cache

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// Errors that a program may act on. They are wrapped with details: test with errors.Is.
var (
	// ErrNotFound: there is no record of the key.
	ErrNotFound = errors.New("not found")
	// ErrNotStored: Add found a record of the key, or Replace, Append or Prepend found
	// none.
	ErrNotStored = errors.New("not stored")
	// ErrChanged: CompareAndSwap found another record than the one that was read.
	ErrChanged = errors.New("changed since it was read")
	// ErrNotNumeric: the value is not a decimal number.
	ErrNotNumeric = errors.New("not a number")
	// ErrTooLarge: the record is longer than the server allows.
	ErrTooLarge = verbs.ErrTooLarge
	// ErrNoMemory: the server has no memory free, since clients may still READ what was
	// freed.
	ErrNoMemory = errors.New("no memory at the server")
	// ErrKey: a key has 1 to 250 bytes.
	ErrKey = errors.New("a key has 1 to 250 bytes")
	// ErrOutcomeUnknown: no reply came, so the server may or may not have carried out the
	// change.
	ErrOutcomeUnknown = operr.ErrOutcomeUnknown
	// ErrUnavailable: there is no connection to the server, or another one has its address. Nothing
	// was changed.
	ErrUnavailable = errors.New("server unavailable")
	// ErrDenied: the server and this client do not agree on a tenant's key, the tenant has as
	// many clients as it may have, or the server is not the one that this client has named.
	ErrDenied = operr.ErrDenied
	// ErrShort: the value is longer than the room for it.
	ErrShort = errors.New("value longer than the buffer")
	// ErrPacer: the pacer in the configuration was closed, or belongs to another device.
	ErrPacer = errors.New("pacer")
	// ErrMoved: another server of the cluster has the key, will have it soon, or may have taken it over. Nothing was
	// changed. A [Cluster] asks that one.
	ErrMoved = errors.New("another server of the cluster has the key")
	// ErrClosed: the client was closed.
	ErrClosed = verbs.ErrClosed
)

// errEnded says that a session has ended: there will be another one.
var errEnded = errors.New("connection to the server has ended")

// errNoTarget: the server has no target through which clients READ.
var errNoTarget = errors.New("the server has no target to READ through")

// errReplaced is the end of a session when there is a better one.
var errReplaced = errors.New("there is a better connection now")

func opError(op string, key []byte, err error) error {
	if len(key) == 0 {
		return fmt.Errorf("cache: %s: %w", op, err)
	}
	return fmt.Errorf("cache: %s %.40q: %w", op, key, err)
}

// outcome returns the error of a reply with status s.
func outcome(s kv.Status) error {
	switch s {
	case kv.OK:
		return nil
	case kv.NotFound:
		return ErrNotFound
	case kv.NotStored:
		return ErrNotStored
	case kv.Exists:
		return ErrChanged
	case kv.NotNumeric:
		return ErrNotNumeric
	case kv.TooLarge:
		return ErrTooLarge
	case kv.NoMemory:
		return ErrNoMemory
	case wire.WrongServer:
		return ErrMoved
	}
	return errEnded // of another epoch
}

func checkKey(key []byte) error {
	if len(key) == 0 || len(key) > wire.MaxKey {
		return ErrKey
	}
	return nil
}
