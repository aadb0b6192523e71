package lockoffload

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// turn is a client's turn at a slot's lock, which the agent has reserved for it.
type turn struct {
	caller *Caller
	slot   int
	seq    uint64 // of the request for it
	word   uint64 // that the lock word has
}

// turnRequest asks for a turn, or ends one.
type turnRequest struct {
	slot int
	of   uint64 // the request of the turn that is ended, or 0
}

// again returns true: the present agent has taken back what an earlier one had reserved.
func (t *turnRequest) again() bool { return true }

func (t *turnRequest) request(dst []byte, client, seq uint64, _, agent uint32) int {
	return len(wire.AppendTurn(dst[:0], client, seq, uint32(t.slot), agent, t.of))
}

// turn waits for the client's turn at a lock, until lost is closed because the session is
// over, which the agent need not know. After an error the client has no turn, or turn has
// sent the agent a message that it does not want one.
func (c *Caller) turn(ctx context.Context, lost <-chan struct{}, slot int) (*turn, error) {
	select {
	case c.asks <- struct{}{}:
		defer func() { <-c.asks }()
	case <-lost:
		return nil, ErrLost
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	p, seq, err := c.exchange(ctx, lost, &turnRequest{slot: slot}, 0)
	t := &turn{caller: c, slot: slot, seq: seq}
	if err != nil {
		if seq != 0 {
			t.end()
		}
		if c.gone() {
			err = c.err // what became of the request does not matter
		}
		return nil, err
	}
	defer c.release(p)
	r, err := wire.DecodeReply(p.reply)
	switch {
	case err == nil && r.Status == wire.ChainNotAcquired: // it is about to be closed, or reserves no more for one client
		return nil, ErrBusy
	case err != nil || r.Status != wire.ChainDone || r.Ops.N != 1:
		return nil, fmt.Errorf("%w: the agent gives no turn: %w", ErrBroken, errors.Join(ErrMessage, err))
	}
	t.word = r.Ops.Next().Version
	return t, nil
}

// end sends the agent the message that the turn is over: the lock is being given back, or
// is not wanted. The message has no reply. An agent that does not get it, because all
// places are taken for instance, finds out by itself.
func (t *turn) end() {
	select {
	case p := <-t.caller.free:
		t.caller.tell(p, &turnRequest{slot: t.slot, of: t.seq})
	default:
	}
}
