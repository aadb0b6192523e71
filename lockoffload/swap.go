package lockoffload

import (
	"context"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// swapTable caches the pointers of slots: of maxSlots slots, and of those that are in
// use.
type swapTable struct {
	mu    sync.Mutex
	slots map[int]*swapSlot
}

type swapSlot struct {
	table   *swapTable
	slot    int
	users   int           // under the table's mu: calls that have the turn, or wait for it
	turn    chan struct{} // full while a call uses the private copies
	s       *session      // pointer was seen in it
	pointer uint64
	known   bool
}

// enter takes the turn of a slot.
func (t *swapTable) enter(ctx context.Context, s *session, slot int) (*swapSlot, error) {
	t.mu.Lock()
	if t.slots == nil {
		t.slots = map[int]*swapSlot{}
	}
	w := t.slots[slot]
	if w == nil {
		w = &swapSlot{table: t, slot: slot, turn: make(chan struct{}, 1)}
		t.slots[slot] = w
	}
	w.users++
	t.mu.Unlock()
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		w.drop()
		return nil, ctx.Err()
	}
	if w.s != s {
		w.s, w.known = s, false
	}
	return w, nil
}

// look returns what is known of the pointer.
func (w *swapSlot) look() machine.SwapLook {
	return machine.SwapLook{Slot: w.slot, Pointer: w.pointer, Known: w.known}
}

// leave gives the turn back and records the pointer, if known.
func (w *swapSlot) leave(pointer uint64, known bool) {
	w.pointer, w.known = pointer, known
	<-w.turn
	w.drop()
}

// drop ends a use of the slot. It forgets an unused slot if there are too many.
func (w *swapSlot) drop() {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	if w.users--; w.users == 0 && len(w.table.slots) > maxSlots {
		delete(w.table.slots, w.slot)
	}
}

// SwapRead reads the last data that [Client.SwapWrite] wrote to a slot, without a lock:
// in one round trip while the pointer is the one that this client saw last, in two
// otherwise. dst gets the data and is returned cut to its length; [Result.Version] is the
// version to pass to SwapWrite. A slot that was never written has no data, and a version
// that is higher than those of earlier regions, see [NewRegion].
//
// The data is apart from the slot's records and its lock; the layout has it
// when Layout.Swap is not 0.
func (c *Client) SwapRead(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	out, res, err := c.swapRead(ctx, slot, dst)
	if err != nil {
		return nil, res, opError("swap read", slot, err)
	}
	return out, res, nil
}

func (c *Client) swapRead(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	res := Result{Protocol: ProtocolSwap}
	w, j, err := c.enterSwap(ctx, slot)
	if err != nil {
		return nil, res, err
	}
	defer j.drop()
	m := &machine.SwapReader{SwapLook: w.look()}
	j.prepare(m)
	_, err = j.drive(ctx)
	w.leave(m.Pointer, m.Known && err == nil)
	res.Tries, res.Version = m.Tried, machine.PointerVersion(m.Pointer)
	if err == nil && len(m.Data) > len(dst) {
		err = fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(m.Data), len(dst))
	}
	if err != nil {
		return nil, res, err
	}
	return dst[:copy(dst, m.Data)], res, nil
}

// SwapWrite writes data to a slot if its version is still the one given, in one
// round trip when this client saw that version itself: the data goes to a copy
// that only this client writes, and the pointer is moved to it if it has not moved
// since. [Result.Version] is the new version. [ErrVersionMismatch] says that the
// slot has another version and nothing was changed; SwapRead returns the version.
//
// The client's owner number must be at most half of Layout.Swap, which has two copies for each
// owner number that writes. With Swap = 2 * Clients all clients can write.
func (c *Client) SwapWrite(ctx context.Context, slot int, version uint64, data []byte) (Result, error) {
	res, err := c.swapWrite(ctx, slot, version, data)
	if err != nil {
		return res, opError("swap write", slot, err)
	}
	return res, nil
}

func (c *Client) swapWrite(ctx context.Context, slot int, version uint64, data []byte) (Result, error) {
	res := Result{Protocol: ProtocolSwap}
	w, j, err := c.enterSwap(ctx, slot)
	if err != nil {
		return res, err
	}
	defer j.drop()
	owner := j.s.tags.Owner
	if len(data) > c.l.Size || 2*int(owner) > c.l.Swap || version >= 1<<machine.SwapVersionBits-1 {
		w.leave(w.pointer, w.known)
		return res, fmt.Errorf("%w: %d bytes, version %d, owner %d of a layout %+v", ErrConfig, len(data), version, owner, c.l)
	}
	m := &machine.SwapWriter{SwapLook: w.look(), Owner: owner, Version: version, Data: data}
	j.prepare(m)
	_, err = j.drive(ctx)
	w.leave(m.Pointer, m.Known && !m.Posted)
	res.Tries, res.Version = m.Tried, machine.PointerVersion(m.Pointer)
	if m.Posted { // and no reply came
		if ctx.Err() != nil { // else err says ErrNotAcquired
			err = ctx.Err()
		}
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return res, err
}

// enterSwap takes the turn of a slot, and a job for it. The caller must give both back.
func (c *Client) enterSwap(ctx context.Context, slot int) (*swapSlot, *job, error) {
	if err := c.named(ctx, slot); err != nil {
		return nil, nil, err
	}
	if c.l.Swap == 0 {
		return nil, nil, fmt.Errorf("%w: the layout has no copies to swap", ErrConfig)
	}
	s := c.session()
	w, err := c.swaps.enter(ctx, s, slot)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	j, err := c.takeJob(s, slot)
	if err != nil {
		w.leave(w.pointer, w.known)
	}
	return w, j, err
}
