package lockoffload

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// direct is what one writes without lockoffload, knowing that a queue pair keeps
// its requests in order: a change takes two round trips.
//
//	CMP_SWAP lock 0 -> tag, READ data  ───▶
//	◀─────────── the data counts if the lock was free
//	WRITE data, CMP_SWAP lock tag -> 0 ───▶
//
// It has no leases, no recovery and one copy of the data: a client that dies in between
// leaves the slot locked.
//
// The lock word is changed by atomics alone. Spin locks in the literature unlock
// by a WRITE, but atomics are atomic among themselves only (IBA volume 1, 9.4.5):
// on Soft-RoCE a CMP_SWAP that fails writes back what it read, and a WRITE that
// comes in between is lost, and the slot locked for ever.
type direct struct {
	*plain
	pauses backoff
}

// lockAndRead tries until the lock is ours and the data are here. Only the last
// request of a post is signaled, which halves the completions.
func (d *direct) lockAndRead(ctx context.Context, slot int) error {
	for failed := 0; ; failed++ {
		d.batch.CmpSwap(0, 0, d.at(slot, 0), 0, d.tag, d.lockWord())
		d.batch.Read(0, verbs.Signaled, d.at(slot, plainData), d.data())
		if err := d.postAndWait(ctx); err != nil {
			return err
		}
		if d.old() == 0 {
			return nil
		}
		if err := d.pauses.wait(ctx, failed); err != nil {
			return err
		}
	}
}

// read is two round trips: nothing waits behind the READ but the unlock.
func (d *direct) read(ctx context.Context, slot int) error {
	if err := d.lockAndRead(ctx, slot); err != nil {
		return err
	}
	d.unlock(slot)
	return d.unlocked(d.postAndWait(ctx))
}

// begin returns when the change is posted, and unlocks behind it.
func (d *direct) begin(ctx context.Context, slot int) error {
	if err := d.lockAndRead(ctx, slot); err != nil {
		return err
	}
	d.compute()
	d.batch.Write(0, 0, d.at(slot, plainData), d.data())
	d.unlock(slot)
	_, err := d.batch.Post()
	return err
}

// change returns after the reply to the unlock.
func (d *direct) change(ctx context.Context, slot int) error {
	if err := d.begin(ctx, slot); err != nil {
		return err
	}
	return d.unlocked(d.wait(ctx))
}

func (d *direct) unlock(slot int) {
	d.batch.CmpSwap(0, verbs.Signaled, d.at(slot, 0), d.tag, 0, d.lockWord())
}

// backoff pauses after a try that failed: first for about First, then twice as
// long each time, up to Most, with as much jitter. The zero value does not pause.
type backoff struct{ First, Most time.Duration }

func (b backoff) wait(ctx context.Context, failed int) error {
	if b.First == 0 {
		return ctx.Err()
	}
	pause := min(b.First<<min(failed, 20), b.Most)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause/2 + rand.N(pause)):
		return nil
	}
}
