//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload"
)

// outcome of an operation that changes something.
type outcome uint8

const (
	nothing outcome = iota // was changed
	changed
	unknown
)

// actor is a client that counts in records, in one form or another, and in the
// slots' private copies.
type actor struct {
	c     *lockoffload.Client
	agent *lockoffload.Caller // nil: none
	size  int                 // of records
	value func() uint64       // what to write in place of one more, if set
}

func (a *actor) next(old []byte) []byte {
	if a.value == nil {
		return binary.LittleEndian.AppendUint64(nil, number(old)+1)
	}
	return binary.LittleEndian.AppendUint64(nil, a.value())
}

var addForms = []string{"update", "exclusive", "fair", "agent", "swap"}

// add adds one to the counter of a slot and returns the outcome, and the counter's
// value before.
func (a *actor) add(ctx context.Context, form string, slot int) (outcome, uint64, error) {
	switch form {
	case "update":
		return a.update(ctx, slot)
	case "exclusive":
		return a.held(ctx, slot, lockoffload.Exclusive)
	case "fair":
		return a.held(ctx, slot, lockoffload.Fair)
	case "agent":
		return a.chain(ctx, slot)
	case "swap":
		return a.swap(ctx, slot)
	}
	return nothing, 0, fmt.Errorf("no form %q", form)
}

// became returns the outcome for an error.
func became(err error) outcome {
	switch {
	case err == nil:
		return changed
	case errors.Is(err, lockoffload.ErrOutcomeUnknown):
		return unknown
	}
	return nothing
}

func (a *actor) update(ctx context.Context, slot int) (outcome, uint64, error) {
	var before uint64
	res, err := updateAsync(ctx, a.c, slot, func(old []byte) ([]byte, error) {
		before = number(old)
		return a.next(old), nil
	})
	if err != nil {
		return became(err), before, err
	}
	if err = res.Commit.Wait(ctx); err != nil {
		return unknown, before, err
	}
	return changed, before, nil
}

func (a *actor) held(ctx context.Context, slot int, mode lockoffload.Mode) (outcome, uint64, error) {
	h, _, err := a.c.Lock(ctx, slot, lockoffload.LockOptions{Mode: mode})
	if err != nil {
		return nothing, 0, err
	}
	data, _, err := h.Read(ctx, 0, make([]byte, a.size))
	if err != nil {
		return nothing, 0, errors.Join(err, h.Unlock(ctx))
	}
	_, err = h.Write(ctx, 0, a.next(data))
	err = errors.Join(err, h.Unlock(ctx))
	return became(err), number(data), err
}

// chain has the agent compare and write.
func (a *actor) chain(ctx context.Context, slot int) (outcome, uint64, error) {
	for {
		read := lockoffload.Chain{Slot: slot, Shared: true, Accesses: []lockoffload.Access{readOf(0, a.size)}}
		_, err := a.agent.Do(ctx, &read)
		if errors.Is(err, lockoffload.ErrBusy) {
			continue
		}
		if err != nil {
			return nothing, 0, err
		}
		old := read.Accesses[0]
		write := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{compareWith(0, old.Version), writeOf(0, string(a.next(old.Data)))}}
		_, err = a.agent.Do(ctx, &write)
		if errors.Is(err, lockoffload.ErrVersionMismatch) || errors.Is(err, lockoffload.ErrBusy) {
			continue
		}
		return became(err), number(old.Data), err
	}
}

func (a *actor) swap(ctx context.Context, slot int) (outcome, uint64, error) {
	for {
		data, res, err := a.c.SwapRead(ctx, slot, make([]byte, a.size))
		if err != nil {
			return nothing, 0, err
		}
		_, err = a.c.SwapWrite(ctx, slot, res.Version, a.next(data))
		if !errors.Is(err, lockoffload.ErrVersionMismatch) {
			return became(err), number(data), err
		}
	}
}

// count reads a slot's counter, or that of its private copies.
func (a *actor) count(ctx context.Context, slot int, swap bool) (uint64, error) {
	f := a.c.Read
	if swap {
		f = a.c.SwapRead
	}
	data, _, err := f(ctx, slot, make([]byte, a.size))
	return number(data), err
}

// updateAsync is Update, but returns when the WRITE and the unlock command are posted.
func updateAsync(ctx context.Context, c *lockoffload.Client, slot int, change func(old []byte) ([]byte, error)) (lockoffload.Result, error) {
	return c.Do(ctx, &lockoffload.Chain{Slot: slot, Async: true, Accesses: []lockoffload.Access{readOf(0, 0), writeOf(0, "")}, Change: func(a []lockoffload.Access) (err error) {
		a[1].Data, err = change(a[0].Data)
		return err
	}})
}

// updateSlots changes record 0 of several slots under all their locks.
func updateSlots(ctx context.Context, c *lockoffload.Client, slots []int, change func(old [][]byte) ([][]byte, error)) (err error) {
	held, err := c.LockAll(ctx, slots...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lockoffload.UnlockAll(ctx, held)) }()
	of, old := map[int]*lockoffload.Lock{}, make([][]byte, len(slots))
	for _, h := range held {
		of[h.Slot()] = h
	}
	for i, slot := range slots {
		if old[i], _, err = of[slot].Read(ctx, 0, make([]byte, 64)); err != nil {
			return err
		}
	}
	data, err := change(old)
	if err != nil {
		return err
	}
	for i, d := range data {
		if d != nil {
			if _, err := of[slots[i]].Write(ctx, 0, d); err != nil {
				return err
			}
		}
	}
	return nil
}
