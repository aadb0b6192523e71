package lockoffload

import (
	"context"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Request is the message that a caller sends for the chain.
func (ch *Chain) Request(dst []byte, client, seq uint64) int {
	return ch.request(dst, client, seq, 0, 0)
}

// ReplyStatus is what a reply says, as an error of [Caller.Do].
func ReplyStatus(msg []byte) (seq uint64, status error, err error) {
	r, err := wire.DecodeReply(msg)
	return r.Seq, statusError(r.Status), err
}

// LeftLocked takes a slot's lock as an agent does that fails then.
func (r *Region) LeftLocked(slot int) error {
	return r.mr.Store64(r.l.LockOff(slot), memory.MakeTag(memory.AgentOwner, 1, 77))
}

// LeaveTurn waits for a turn at a slot's lock, and does nothing about it: so far a client
// comes whose host dies there.
func (c *Caller) LeaveTurn(ctx context.Context, slot int) error {
	_, err := c.turn(ctx, nil, slot)
	return err
}

// Queued is how many clients wait for a slot's lock in turn.
func (a *Agent) Queued(slot int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.core.Broker.Waiting(uint32(slot))
}
