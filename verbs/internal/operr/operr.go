// Package operr has the errors that the packages of verbs share: an operation,
// its object, what is known of the cause, and the sentinel or errno.
package operr

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels of lifetimes: see package verbs, which exports them.
var (
	ErrClosed = errors.New("closed")
	ErrInUse  = errors.New("in use")
)

// Error is the failure of one operation on one object: verbs.OpError.
type Error struct {
	Op     string // such as "register memory"
	Object string // such as "qp 0x11" or "rxe0"
	Detail string // what is known of the cause, or empty
	Err    error  // a sentinel, an errno, or both joined
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteString(e.Op)
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	b.WriteString(": ")
	b.WriteString(plain(e.Err))
	if e.Detail != "" {
		b.WriteString(" (" + e.Detail + ")")
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

const prefix = "verbs: "

// plain is an error's text without the prefix, for the middle of another one.
func plain(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

// New answers an [*Error], or nil if err is.
func New(op, object string, err error, detail ...any) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Object: object, Err: err}
	if len(detail) > 0 {
		e.Detail = fmt.Sprint(detail...)
	}
	return e
}

// classed is an errno with the sentinel that it means in its place.
type classed struct {
	class error
	errno error
}

func (c classed) Error() string   { return c.class.Error() + ": " + plain(c.errno) }
func (c classed) Unwrap() []error { return []error{c.class, c.errno} }

// Class is an errno, or another cause, that matches the sentinel too.
func Class(sentinel, errno error) error { return classed{sentinel, errno} }
