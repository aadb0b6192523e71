package srd

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/verbs"
)

// Service is the way in which messages are sent.
type Service uint8

const (
	// Reliable delivers each message at most once, in any order, and reports what
	// became of it.
	Reliable Service = engine.Reliable
	// Ordered is like Reliable, but delivers messages in the order of sending.
	Ordered Service = engine.Ordered
	// NoRetransmit is like Reliable, but does not send again what is lost: the status of
	// such a message is [Retransmit].
	NoRetransmit Service = engine.NoRetransmit
)

// Status is what became of a message, or of a packet of it.
type Status uint8

const (
	Delivered    Status = Status(engine.Delivered)
	Refused      Status = Status(engine.Refused)      // the receiver had no buffer
	Retransmit   Status = Status(engine.Retransmit)   // it was lost: send it again, if it still matters
	Unresponsive Status = Status(engine.Unresponsive) // the peer is silent or has restarted: the message may have been delivered
	Cancelled    Status = Status(engine.Cancelled)    // given up in time: it was not and will not be delivered
	TooLarge     Status = Status(engine.TooLarge)     // longer than the receiver's MaxMessage
	PathMTU      Status = Status(engine.PathMTU)      // the path loses packets of that length; later messages go in shorter ones
)

var statusNames = [...]string{"unsettled", "delivered", "refused", "to be retransmitted", "peer unresponsive", "cancelled",
	"longer than the receiver accepts", "lost by the path for its length"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// Errors on which a program decides, one for each status but Delivered.
var (
	ErrRefused      = errors.New("the receiver had no buffer")
	ErrRetransmit   = errors.New("lost, to be retransmitted by the application")
	ErrUnresponsive = errors.New("the peer is unresponsive; the message may have been delivered")
	// ErrCanceled: the message was canceled before it was delivered.
	ErrCanceled = operr.ErrCanceled
	// ErrTooLarge: the message is longer than the receiver's [Config.MaxMessage], which a
	// [TooLargeError] has. Nothing of it was delivered.
	ErrTooLarge = verbs.ErrTooLarge
	// ErrPathMTU: packets that both ends' links carry are lost on the way, and shorter ones
	// are not. The message was not delivered. Later messages to the peer go in packets of
	// at most 1024 bytes.
	ErrPathMTU = verbs.ErrPathMTU
	// ErrQueueFull: completions have to be taken first.
	ErrQueueFull = verbs.ErrQueueFull
	// ErrPeers: the endpoint has MaxPeers peers, and none of them has been silent for four
	// times PeerTimeout.
	ErrPeers = errors.New("too many peers")
)

// errNoReply is ErrUnresponsive with the likely causes, for a peer that has never responded.
var errNoReply = fmt.Errorf("%w; it has never replied: are its address and QKey right, and does it have the same Key?", ErrUnresponsive)

// TooLargeError is an [ErrTooLarge] with both lengths in bytes: that of the message, and the
// receiver's [Config.MaxMessage].
type TooLargeError struct{ Size, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message too large: it has %d bytes, and the receiver accepts %d", e.Size, e.Limit)
}

func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// Err returns the error of the status, nil for Delivered.
func (s Status) Err() error {
	switch s {
	case Refused:
		return ErrRefused
	case Retransmit:
		return ErrRetransmit
	case Unresponsive:
		return ErrUnresponsive
	case Cancelled:
		return ErrCanceled
	case TooLarge:
		return ErrTooLarge
	case PathMTU:
		return ErrPathMTU
	}
	return nil
}
