package srd

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Destination is a peer, and the service by which messages are sent to
// it. A message with a Destination needs no other address.
type Destination struct {
	ep      *Endpoint
	to      Addr
	service Service
}

// Destination returns the destination of a peer and a service. It sends nothing, and
// keeps no state until a message is sent.
func (ep *Endpoint) Destination(to Addr, s Service) *Destination {
	return &Destination{ep: ep, to: to, service: s}
}

// Send sends to the peer by the service, as [Endpoint.Send] does.
func (c *Destination) Send(ctx context.Context, data ...[]byte) error {
	return c.ep.send(ctx, c.to, c.service, data)
}

// QueueConfig configures a send queue. The zero value is fine.
type QueueConfig struct {
	Service Service // of messages without a Destination
	Depth   int     // messages with completions that Wait has not taken; 0 means 1024
}

// SendQueue takes messages, and completes them in any order. A message that names no
// destination uses that of its address and the queue's service, which all queues
// with that service share.
type SendQueue struct {
	ep      *Endpoint
	cfg     QueueConfig
	posted  int // and not taken by Wait
	done    ring[Completion]
	waiting sleepers
	closed  bool
}

// Request is a message to be sent. Data belongs to the endpoint until the completion.
type Request struct {
	ID          uint64
	To          Addr         // if Destination is nil
	Destination *Destination // of the same endpoint
	Data        [][]byte
	Packets     bool // report the status of each packet, too
}

// Completion reports what became of a message.
type Completion struct {
	ID     uint64
	Status Status
	// Packet is the first packet that kept a message from being delivered. Sent packets
	// were sent, of which Refused were refused.
	Packet, Sent, Refused int
	Packets               []Status // if the request asked for them
	Limit                 int      // bytes of the longest message that the receiver accepts, if Status is TooLarge
}

// NewQueue creates a send queue.
func (ep *Endpoint) NewQueue(cfg QueueConfig) (*SendQueue, error) {
	if cfg.Service > NoRetransmit || cfg.Depth < 0 {
		return nil, fmt.Errorf("srd: make queue: %w: service %d, depth %d", verbs.ErrAttributes, cfg.Service, cfg.Depth)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.open(); err != nil {
		return nil, fmt.Errorf("srd: make queue: %w", err)
	}
	return ep.newQueue(cfg), nil
}

func (ep *Endpoint) newQueue(cfg QueueConfig) *SendQueue {
	if cfg.Depth == 0 {
		cfg.Depth = 1024
	}
	q := &SendQueue{ep: ep, cfg: cfg}
	ep.queues[q] = true
	return q
}

// Post takes messages, and sends what may be sent now. It returns how many it took, and
// an error if it did not take all.
func (q *SendQueue) Post(rs ...Request) (n int, err error) {
	ep := q.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.open(); err != nil || q.closed {
		return 0, fmt.Errorf("srd: post: %w", errors.Join(err, closedIf(q.closed)))
	}
	now := ep.now()
	ep.e.Advance(now)
	for i := range rs {
		r := &rs[i]
		if q.posted >= q.cfg.Depth {
			err = ErrQueueFull
			break
		}
		to, service := r.To, q.cfg.Service
		if c := r.Destination; c != nil {
			if c.ep != ep {
				err = fmt.Errorf("%w: a Destination of another endpoint", verbs.ErrAttributes)
				break
			}
			to, service = c.to, c.service
		}
		if _, err = ep.post(q, r.ID, to, service, r.Data, false, r.Packets); err != nil {
			break
		}
		q.posted++
		n++
	}
	ep.flush(now)
	if len(rs) > 1 || len(rs) == 1 && size(rs[0].Data) > ep.e.Fragment() { // one packet takes less than grace on any host
		ep.polls.stays(ep.now() - now)
	}
	if err != nil {
		err = fmt.Errorf("srd: post: %w", err)
	}
	return n, err
}

func closedIf(closed bool) error {
	if closed {
		return verbs.ErrClosed
	}
	return nil
}

// Send sends the gathered bytes as one message, reliably and out of order, and waits for
// its status. If ctx ends first, the message is given up, and Send returns the error of ctx,
// never [ErrCanceled]: then the message may have been delivered. The data needs no registration,
// and belongs to the program again when Send returns.
func (ep *Endpoint) Send(ctx context.Context, to Addr, data ...[]byte) error {
	return ep.send(ctx, to, Reliable, data)
}

func (ep *Endpoint) send(ctx context.Context, to Addr, s Service, data [][]byte) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("srd: send to %v: %w", to, err)
	}
	ep.mu.Lock()
	err := ep.open()
	var r *request
	now := ep.now()
	if err == nil {
		ep.e.Advance(now)
		r, err = ep.post(ep.main, 0, to, s, data, true, false)
	}
	if err != nil {
		ep.mu.Unlock()
		return fmt.Errorf("srd: send to %v: %w", to, err)
	}
	ep.polls.enter(&r.waiter)
	defer ep.mu.Unlock()
	defer ep.polls.leave(&r.waiter)
	ep.flush(now)
	for r.status == 0 {
		ep.mu.Unlock()
		err = ep.d.Wait(ctx, &r.waiter)
		ep.mu.Lock()
		ep.pump()
		if r.status != 0 {
			break
		}
		if err = errors.Join(err, ep.open()); err != nil {
			ep.giveUp(r)
			return fmt.Errorf("srd: send to %v: %w", to, err)
		}
		r.waiter.Reset()
	}
	err = ep.why(r, to.GID, data)
	ep.requests.free(uint32(r.id))
	if err != nil {
		err = fmt.Errorf("srd: send to %v: %w", to, err)
	}
	return err
}

// Wait waits for at least one completion, and takes as many as are there and fit into cs.
func (q *SendQueue) Wait(ctx context.Context, cs []Completion) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("srd: wait: %w", err)
	}
	ep := q.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if len(cs) == 0 {
		return 0, nil
	}
	if err := ep.await(ctx, &q.waiting, q.ready); err != nil && q.done.n == 0 {
		return 0, fmt.Errorf("srd: wait: %w", err)
	}
	for n < len(cs) && q.done.n > 0 {
		cs[n] = q.done.pop()
		n++
	}
	q.posted -= n
	if n == 0 {
		return 0, fmt.Errorf("srd: wait: %w", verbs.ErrClosed)
	}
	return n, nil
}

func (q *SendQueue) ready() bool { return q.done.n > 0 || q.closed }

// Close cancels the messages of the queue that are not settled. Their data belongs to the
// program when Close returns. Closing twice is not an error.
func (q *SendQueue) Close() error {
	ep := q.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	for _, r := range ep.requests.all {
		if r.q == q && r.status == 0 && !ep.closed.Load() {
			ep.giveUp(r)
		}
	}
	q.waiting.wake(&ep.polls)
	delete(ep.queues, q)
	return nil
}
