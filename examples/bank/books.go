package main

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/lockoffload"
)

// books are accounts under their locks.
type books struct {
	held     map[int]*lockoffload.Lock
	accounts map[int]account
}

// locked calls f with accounts that are locked and have no transfer open.
func (d *day) locked(ctx context.Context, c *lockoffload.Client, slots []int, f func(*books) error) error {
	for {
		other, err := d.try(ctx, c, slots, f)
		if err != nil || other == nil {
			return err
		}
		// A transfer that another client left behind, with an account beyond ours.
		pair := []int{int(other.from), int(other.to)}
		if _, err := d.try(ctx, c, pair, func(*books) error { return nil }); err != nil {
			return err
		}
	}
}

// try locks the accounts, ends their open transfers and calls f. If a transfer concerns an
// account that is not locked, it returns that transfer instead: it must be ended first.
func (d *day) try(ctx context.Context, c *lockoffload.Client, slots []int, f func(*books) error) (other *transfer, err error) {
	held, err := c.LockAll(ctx, slots...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lockoffload.UnlockAll(ctx, held)) }()
	b := &books{held: map[int]*lockoffload.Lock{}, accounts: map[int]account{}}
	for _, h := range held {
		data, _, err := h.Read(ctx, 0, make([]byte, accountSize))
		if err != nil {
			return nil, err
		}
		b.held[h.Slot()], b.accounts[h.Slot()] = h, decode(data)
	}
	for _, h := range held {
		t := b.accounts[h.Slot()].open
		if t.id == 0 {
			continue
		}
		source, ok1 := b.accounts[int(t.from)]
		destination, ok2 := b.accounts[int(t.to)]
		if !ok1 || !ok2 {
			return &t, nil
		}
		if err := b.carryOut(ctx, t.finish(source, destination)); err != nil {
			return nil, err
		}
		d.finished.Add(1)
	}
	return nil, f(b)
}

// carryOut writes the accounts, one after the other.
func (b *books) carryOut(ctx context.Context, writes []write) error {
	for _, w := range writes {
		h := b.held[w.slot]
		if _, err := h.Write(ctx, 0, w.to.encode()); err != nil {
			return err
		}
		if err := h.Commit(ctx); err != nil { // before the next account is touched
			return err
		}
		b.accounts[w.slot] = w.to
	}
	return nil
}
