package srd

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/verbs"
)

// request is a message under way.
type request struct {
	q      *SendQueue // nil: the message was given up
	id     uint64
	data   [][]byte
	handle engine.Handle
	waiter verbs.Waiter // of Send
	waited bool
	status Status

	limit           uint32 // bytes of the longest message that the peer accepts
	unauthenticated bool   // the peer had never responded
	packets         []Status
	each            bool
	next            uint32
}

const none = ^uint32(0)

// requests are the messages under way, by the tags that the machine has for them. The endpoint's
// lock guards them.
type requests struct {
	all    []*request
	unused uint32 // the first one that is not in use, or none
}

func (rs *requests) take() (i uint32, r *request) {
	if i = rs.unused; i == none {
		i = uint32(len(rs.all))
		rs.all = append(rs.all, &request{next: none})
	}
	r = rs.all[i]
	rs.unused = r.next
	return i, r
}

func (rs *requests) free(i uint32) {
	r := rs.all[i]
	clear(r.data)
	r.q, r.data = nil, r.data[:0]
	r.next, rs.unused = rs.unused, i
}

// post hands a message to the machine.
func (ep *Endpoint) post(q *SendQueue, id uint64, to Addr, s Service, data [][]byte, waited, each bool) (*request, error) {
	if to.GID == (verbs.GID{}) || to.QPN == 0 {
		return nil, fmt.Errorf("%w: the address of no endpoint", verbs.ErrAttributes)
	}
	n := size(data)
	i, r := ep.requests.take()
	r.q, r.id, r.waited, r.status, r.each, r.packets = q, id, waited, 0, each, nil
	r.data = append(r.data[:0], data...)
	if waited {
		r.waiter.Reset()
	}
	h, err := ep.e.Send(to.wire(), engine.Message{Tag: uint64(i), Service: uint8(s), Len: n, Now: waited, Parts: each})
	if err != nil {
		ep.requests.free(i)
		var long engine.TooLargeError
		switch {
		case errors.As(err, &long):
			err = &TooLargeError{Size: n, Limit: int(long.Limit)}
		case errors.Is(err, engine.ErrPeers):
			err = ErrPeers
		default:
			err = fmt.Errorf("%w: %w", verbs.ErrAttributes, err)
		}
		return nil, err
	}
	r.handle = h
	return r, nil
}

func size(data [][]byte) (n int) {
	for _, b := range data {
		n += len(b)
	}
	return n
}

// why returns the error of a message that has a status, with the cause if it is
// known. ep.mu must be held.
func (ep *Endpoint) why(r *request, to verbs.GID, data [][]byte) error {
	err := r.status.Err()
	switch r.status {
	case TooLarge:
		return &TooLargeError{Size: size(data), Limit: int(r.limit)}
	case Unresponsive:
		if cause := ep.handles.failed[to]; cause != nil {
			return fmt.Errorf("%w; there is no way to it: %w", err, cause)
		}
		if r.unauthenticated {
			return errNoReply
		}
	}
	return err
}

// giveUp cancels a message; its status is not reported. Its bytes go back to the program: the
// machine needs those of a cancelled message no more, and sends a copy if it cannot cancel it.
func (ep *Endpoint) giveUp(r *request) {
	r.waited, r.q = false, nil
	ep.e.Advance(ep.now())
	ep.e.Cancel(r.handle)
	if r.status == 0 {
		for i, b := range r.data {
			r.data[i] = slices.Clone(b)
		}
	}
	ep.pump()
}

// settled reports the result of a message. The machine calls it, with ep.mu held.
func (ep *Endpoint) settled(res *engine.Result) {
	i := uint32(res.Tag)
	r := ep.requests.all[i]
	r.status, r.limit, r.unauthenticated = Status(res.Status), res.Limit, res.Unauthenticated
	switch {
	case r.waited:
		r.id = uint64(i) // Send frees it
		ep.polls.wake(&r.waiter)
		return
	case r.q != nil:
		c := Completion{ID: r.id, Status: r.status, Packet: res.Part, Sent: res.Parts, Refused: res.Refused, Packets: r.packets}
		if r.status == TooLarge {
			c.Limit = int(r.limit)
		}
		r.q.done.push(c)
		r.q.waiting.wake(&ep.polls)
	}
	ep.requests.free(i)
}
