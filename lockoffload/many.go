package lockoffload

import (
	"context"
	"errors"
	"slices"
)

// LockAll takes the locks of several slots, in ascending order whatever order
// they are named in, so that clients which all use it cannot wait for each
// other in a circle. A slot named twice is locked once. When one lock cannot be
// had, those already taken are released. The locks are answered in ascending
// order of their slots.
//
// A holder that calls Lock or LockAll again gives this promise up.
func (c *Client) LockAll(ctx context.Context, slots ...int) ([]*Held, error) {
	ordered := slices.Compact(slices.Sorted(slices.Values(slots)))
	held := make([]*Held, 0, len(ordered))
	for _, slot := range ordered {
		h, _, err := c.Lock(ctx, slot)
		if err != nil {
			// The context may have ended; the locks must go all the same.
			return nil, errors.Join(err, UnlockAll(context.WithoutCancel(ctx), held))
		}
		held = append(held, h)
	}
	return held, nil
}

// UnlockAll releases locks, the last one first. It tries all of them and joins
// the errors.
func UnlockAll(ctx context.Context, held []*Held) error {
	var errs []error
	for _, h := range slices.Backward(held) {
		errs = append(errs, h.Unlock(ctx))
	}
	return errors.Join(errs...)
}
