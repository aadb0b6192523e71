package server

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/internal/pending"
)

// Refused counts connections that did not become clients, by cause.
type Refused struct {
	Denied  uint64 // the tenant is not known, or the key is another one
	Full    uint64 // the tenant has as many clients as it may
	Silent  uint64 // the greeting took too long
	Crowded uint64 // a newer connection took the place of one that had not proved a key
	Other   uint64 // it ended, or spoke something else
}

// Refused returns the counters of a server that has its own address. Those of tenants are
// [Tenants.Refused].
func (s *Server) Refused() Refused {
	if s.admission == nil {
		return Refused{}
	}
	return s.admission.refused.stats()
}

// refusals are the counters of an admission.
type refusals struct {
	denied, full, silent, crowded, other atomic.Uint64
}

// add counts a connection that was closed with an error.
func (r *refusals) add(err error) {
	n := &r.other
	switch {
	case errors.Is(err, greet.ErrDenied):
		n = &r.denied
	case errors.Is(err, greet.ErrFull):
		n = &r.full
	case errors.Is(err, pending.ErrCrowded):
		n = &r.crowded
	case errors.Is(err, os.ErrDeadlineExceeded):
		n = &r.silent
	}
	n.Add(1)
}

func (r *refusals) stats() Refused {
	return Refused{Denied: r.denied.Load(), Full: r.full.Load(), Silent: r.silent.Load(), Crowded: r.crowded.Load(), Other: r.other.Load()}
}
