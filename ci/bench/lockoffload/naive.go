package lockoffload

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// naive takes one step at a time: each request is posted when the reply to the
// one before is here.
type naive struct{ *plain }

// lock spins until the lock is ours.
func (n *naive) lock(ctx context.Context, slot int) error {
	for {
		n.batch.CmpSwap(0, verbs.Signaled, n.at(slot, 0), 0, n.tag, n.lockWord())
		if err := n.postAndWait(ctx); err != nil {
			return err
		}
		if n.old() == 0 {
			return nil
		}
	}
}

func (n *naive) unlock(ctx context.Context, slot int) error {
	n.batch.CmpSwap(0, verbs.Signaled, n.at(slot, 0), n.tag, 0, n.lockWord())
	return n.unlocked(n.postAndWait(ctx))
}

func (n *naive) readData(ctx context.Context, slot int) error {
	n.batch.Read(0, verbs.Signaled, n.at(slot, plainData), n.data())
	return n.postAndWait(ctx)
}

func (n *naive) writeData(ctx context.Context, slot int) error {
	n.compute()
	n.batch.Write(0, verbs.Signaled, n.at(slot, plainData), n.data())
	return n.postAndWait(ctx)
}

// read is lock, READ, unlock; three round trips.
func (n *naive) read(ctx context.Context, slot int) error {
	if err := n.lock(ctx, slot); err != nil {
		return err
	}
	if err := n.readData(ctx, slot); err != nil {
		return err
	}
	return n.unlock(ctx, slot)
}

// change is lock, READ, WRITE, unlock; four round trips.
func (n *naive) change(ctx context.Context, slot int) error {
	if err := n.lock(ctx, slot); err != nil {
		return err
	}
	if err := n.readData(ctx, slot); err != nil {
		return err
	}
	if err := n.writeData(ctx, slot); err != nil {
		return err
	}
	return n.unlock(ctx, slot)
}
