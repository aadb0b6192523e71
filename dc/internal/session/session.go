// Package session has the two state machines of dc's software back end: the
// [Initiator], which decides which of its contexts serves which target, and the
// [Target], which gives out responder contexts. They have no clock, do no I/O and
// take no locks: a driver tells them the time and what happened, and carries out
// what they ask for.
package session

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
	"github.com/goverbs/goverbs/internal/operr"
)

// Why requests that wait for a target fail.
var (
	ErrUnreachable = operr.ErrUnreachable
	ErrRefused     = errors.New("refused by the target")
	ErrNoContexts  = errors.New("no initiator context works")
)

// Why sessions break off, if no request failed before.
var (
	ErrStale   = errors.New("the target has ended the session")
	ErrAborted = errors.New("a request took longer than its caller waits")
)

// Never is when nothing is to be done.
const Never = time.Duration(1<<63 - 1)

// Session is what a target has assigned to an initiator context. One that is kept
// waits, without a queue pair, until the same context serves its target again.
type Session struct {
	ID      uint64 // 0: none
	Context int32
	Attempt uint32
	QPN     uint32        // of the responder context
	PSN     uint32        // of the next packet to it
	Lease   uint32        // milliseconds
	MTU     wire.MTU      //
	counts  bool          // requests are signs of life as messages are: [wire.PacketsCount]
	heard   time.Duration // when the last sign of life was sent that has come there
}

// usable returns until when a kept session may be taken up again: the target
// keeps it for the whole lease, and the rest of it is for the next keep-alive.
func (s *Session) usable() time.Duration { return s.heard + s.lease()/2 }

func (s *Session) lease() time.Duration { return time.Duration(s.Lease) * time.Millisecond }

// nextKeepAlive returns when the target should hear again of a session in use: after
// an eighth to three eighths of the lease, by its id, so that sessions made
// together do not all ask at the same time.
func (s *Session) nextKeepAlive() time.Duration {
	return s.heard + s.lease()/8 + time.Duration(s.ID%1024)*s.lease()/4096
}

func milliseconds(t time.Duration) uint32 {
	return uint32((t + time.Millisecond - 1) / time.Millisecond)
}
