// Package cgo is the only package that calls rdma-core: every import "C" and every
// conversion between C and Go memory is here or in its sub-packages, except for the
// views of slices in verbs/view.go.
//
// It is a mechanical layer. Handles are the addresses of the C objects, typed
// so that one kind cannot be passed for another; structures shared with C have
// the layout of their C twins, asserted at compile time; errors are bare
// errnos. Nothing is checked twice and nothing is remembered: lifetimes,
// validation and concurrency belong to package verbs, which is what programs
// should import.
//
// Data-path calls cross into C once for a whole batch and never allocate.
//
// Without cgo, or on another system than Linux, every call returns
// [ErrUnsupported], so that programs in which RDMA is optional still build.
package cgo

import "errors"

// ErrUnsupported is returned by every call of a build that has no rdma-core:
// CGO_ENABLED=0, or another system than Linux. It matches
// [errors.ErrUnsupported].
var ErrUnsupported = errUnsupported{}

type errUnsupported struct{}

func (errUnsupported) Error() string {
	return "built without rdma-core (needs Linux and CGO_ENABLED=1)"
}

func (errUnsupported) Is(target error) bool { return target == errors.ErrUnsupported }
