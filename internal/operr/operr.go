// Package operr gives the errors of several packages one form: the package, the
// operation, its object, the cause, and what is known of that.
package operr

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Sentinels that several packages export, so that a program that uses several tests for one
// error. Package verbs and the systems document them.
var (
	ErrClosed         = errors.New("closed")
	ErrInUse          = errors.New("in use")
	ErrConfig         = errors.New("invalid attributes") // verbs.ErrAttributes
	ErrUnreachable    = errors.New("unreachable")
	ErrDenied         = errors.New("denied")
	ErrTimeout        = errors.New("timed out") // not a context's, whose error is never renamed
	ErrCanceled       = errors.New("canceled")  // likewise
	ErrTooLarge       = errors.New("too large")
	ErrOutcomeUnknown = errors.New("outcome unknown")
)

// Error is the failure of one operation on one object: verbs.OpError.
type Error struct {
	Op     string // such as "register memory"
	Object string // such as "qp 0x11" or "rxe0"
	Detail string // what is known of the cause, or empty
	Err    error  // a sentinel, an errno, or both joined
	pkg    string // whose error it is; empty: of package verbs
}

func (e *Error) Error() string {
	return Text(cmp.Or(e.pkg, "verbs"), e.Op, e.Object, e.Err, e.Detail)
}

func (e *Error) Unwrap() error { return e.Err }

// New returns an [*Error] of package verbs, or nil if err is.
func New(op, object string, err error, detail ...any) error {
	return In("verbs", op, object, err, detail...)
}

// In is New for an error of another package.
func In(pkg, op, object string, err error, detail ...any) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Object: object, Err: err, pkg: pkg}
	if len(detail) > 0 {
		e.Detail = fmt.Sprint(detail...)
	}
	return e
}

// Text is "PACKAGE: OPERATION OBJECT: CAUSE (DETAIL)", without what is empty.
func Text(pkg, op, object string, cause error, detail string) string {
	var b strings.Builder
	b.WriteString(pkg)
	b.WriteString(": ")
	b.WriteString(op)
	if object != "" {
		b.WriteString(" " + object)
	}
	b.WriteString(": ")
	b.WriteString(about(object, cause))
	if detail != "" {
		b.WriteString(" (" + detail + ")")
	}
	return b.String()
}

// about returns the text of a cause for an error about an object. An error in the cause that
// is about the same object does not name it again.
func about(object string, cause error) string {
	text := Plain(cause)
	var e *Error
	if object == "" || !errors.As(cause, &e) || e.Object != object {
		return text
	}
	op := e.Op + ": "
	for _, preposition := range []string{"on", "of", "for", "to"} {
		op = strings.Replace(op, " "+preposition+": ", ": ", 1)
	}
	if op == "use: " {
		op = ""
	}
	return strings.Replace(text, e.Op+" "+object+": ", op, 1)
}

// Plain is an error's text on one line and without the package in front, for the middle of
// another one. An error with a method Brief has a text for that place.
func Plain(err error) string {
	s := ""
	if b, ok := err.(interface{ Brief() string }); ok {
		s = b.Brief()
	} else {
		s = err.Error()
	}
	s = strings.ReplaceAll(s, "\n", "; ")
	for _, pkg := range []string{"verbs: ", "netpath: "} {
		if rest, ok := strings.CutPrefix(s, pkg); ok {
			return rest
		}
	}
	return s
}

// classed is an errno with the sentinel that it means in its place.
type classed struct {
	class error
	errno error
}

func (c classed) Error() string   { return c.class.Error() + ": " + Plain(c.errno) }
func (c classed) Unwrap() []error { return []error{c.class, c.errno} }

// joined are errors with their texts on one line.
type joined struct{ errs []error }

func (j *joined) Error() string {
	texts := make([]string, len(j.errs))
	for i, err := range j.errs {
		texts[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.Join(texts, "; ")
}

func (j *joined) Unwrap() []error { return j.errs }

// Join is [errors.Join] with a text of one line, for logs that go by lines.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &joined{all}
}

// Class returns an error that matches the sentinel and the errno (or another cause),
// with both in its text.
func Class(sentinel, errno error) error { return classed{sentinel, errno} }
