package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// LockAll takes the locks of several slots, in ascending order whatever order
// they are named in, so that clients which all use it cannot wait for each
// other in a circle. A slot named twice is locked once. When one lock cannot be
// had, those already taken are released, in the background when the context has ended.
// The locks are answered in ascending order of their slots.
//
// A holder that calls Lock or LockAll again gives this promise up.
func (c *Client) LockAll(ctx context.Context, slots ...int) ([]*Held, error) {
	if err := ctx.Err(); err != nil {
		return nil, opErrorf("lock", err)
	}
	ordered := slices.Compact(slices.Sorted(slices.Values(slots)))
	held := make([]*Held, 0, len(ordered))
	for _, slot := range ordered {
		h, _, err := c.Lock(ctx, slot)
		if err != nil {
			return nil, errors.Join(err, UnlockAll(ctx, held))
		}
		held = append(held, h)
	}
	return held, nil
}

// UnlockAll releases locks, the last one first. It tries all of them and joins
// the errors. When the context has ended it waits for none of them: they go on in the
// background, see [Held.Unlock].
func UnlockAll(ctx context.Context, held []*Held) error {
	var errs []error
	for _, h := range slices.Backward(held) {
		errs = append(errs, h.Unlock(ctx))
	}
	return errors.Join(errs...)
}

// UpdateSlots changes record 0 of several slots under all their locks, which it takes as
// [Client.LockAll] does. change gets their data in the order in which the slots were
// named, valid until it returns, and answers the new data; a nil entry leaves its slot as
// it is, an error leaves all. It answers when all of it has happened, and the locks are
// free.
//
// Who has the locks of these slots, other callers of UpdateSlots for instance, sees all
// of the change or nothing, as long as the client lives. That is not so for reads without
// a lock, each of which sees its slot before or after, nor when the client dies in the
// middle: slots are written one by one. Then, and when the connection fails, the error
// is [ErrOutcomeUnknown] and each slot has its old data or its new. Records that must
// never part belong into one slot.
//
// The context ends it until change has returned. One that ends later has it answer
// [ErrOutcomeUnknown], and the change is carried through in the background.
func (c *Client) UpdateSlots(ctx context.Context, slots []int, change func(old [][]byte) ([][]byte, error)) error {
	if len(slots) == 0 {
		return fmt.Errorf("lockoffload: update no slots: %w", ErrConfig)
	}
	held, err := c.LockAll(ctx, slots...)
	if err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // change panics
			_ = UnlockAll(ctx, held)
		}
	}()
	of, err := c.changeHeld(ctx, slots, held, change)
	ended = true
	if err != nil {
		return errors.Join(err, UnlockAll(ctx, held))
	}
	// Until here the context could end it. What was begun is carried through, also when
	// nobody waits any more.
	over := make(chan error, 1)
	go func() {
		err := commitAll(of)
		uerr := UnlockAll(context.WithoutCancel(ctx), held)
		if err == nil && uerr != nil {
			uerr = fmt.Errorf("%w: the slots were changed: %w", ErrOutcomeUnknown, uerr)
		}
		over <- errors.Join(err, uerr)
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return fmt.Errorf("lockoffload: update slots %v: %w: %w", slots, ErrOutcomeUnknown, ctx.Err())
	}
}

// changeHeld stages the change, and answers the locks in the caller's order.
func (c *Client) changeHeld(ctx context.Context, slots []int, held []*Held, change func([][]byte) ([][]byte, error)) ([]*Held, error) {
	if len(held) != len(slots) {
		return nil, fmt.Errorf("lockoffload: update slots %v: one is named twice: %w", slots, ErrConfig)
	}
	of := make([]*Held, len(slots))
	old := make([][]byte, len(slots))
	for i, slot := range slots {
		at, _ := slices.BinarySearchFunc(held, slot, func(h *Held, slot int) int { return h.Slot() - slot })
		of[i] = held[at]
		var err error
		if old[i], _, err = of[i].Read(ctx, 0, make([]byte, c.l.Size)); err != nil {
			return nil, err
		}
	}
	data, err := change(old)
	if err == nil && len(data) != len(slots) {
		err = fmt.Errorf("lockoffload: update slots %v: %w: %d slots changed", slots, ErrConfig, len(data))
	}
	if err != nil {
		return nil, err
	}
	for i, d := range data {
		if d != nil {
			if _, err := of[i].Write(ctx, 0, d); err != nil {
				discard(of)
				return nil, err
			}
		}
	}
	return of, nil
}

// discard forgets what holders have collected.
func discard(held []*Held) {
	for _, h := range held {
		_ = h.enter(context.Background())
		h.staged = false
		h.leave()
	}
}

// commitAll makes the changes of several holders, together, and waits for all of them
// before any lock is given back.
func commitAll(held []*Held) error {
	errs := make([]error, len(held))
	var wg sync.WaitGroup
	for i, h := range held {
		wg.Go(func() { errs[i] = h.Commit(context.Background()) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	for _, e := range errs {
		if e == nil && !errors.Is(err, ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: some of the slots were changed: %w", ErrOutcomeUnknown, err)
		}
	}
	discard(held)
	return err
}
