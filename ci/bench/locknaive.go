package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// naive is a client that takes one step at a time: each request is posted when
// the reply to the one before is here. It waits for completions as ours does.
type naive struct {
	t      *lockTarget
	qp     *verbs.QP
	cq     *verbs.CQ
	mr     *verbs.MR
	batch  *verbs.Batch
	wcs    [1]verbs.WC
	tag    uint64
	pauses naiveBackoff
}

// A slot of naive clients is a lock word, and data in a cache line of its own:
// as much data as our records have, without version and checksum, and one copy.
const (
	naiveStride = 128
	naiveData   = 64
)

func (t *lockTarget) newNaive(tag uint64) (*naive, error) {
	n := &naive{t: t, tag: tag}
	var err error
	if n.qp, n.cq, err = t.end(); err != nil {
		return nil, err
	}
	far, err := t.s.pd.CreateQP(verbs.QPConfig{SendCQ: t.cq, GID: t.s.gid, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	if err := connectQPs(n.qp, far); err != nil {
		return nil, err
	}
	if n.mr, err = t.c.pd.AllocMR(naiveStride, verbs.MRConfig{}); err != nil {
		return nil, err
	}
	n.batch, err = n.qp.NewBatch(1)
	return n, err
}

func (n *naive) wait(ctx context.Context) error {
	if _, err := n.batch.Post(); err != nil {
		return err
	}
	if _, err := n.cq.Wait(ctx, n.wcs[:]); err != nil {
		return err
	}
	return n.wcs[0].Err()
}

func (n *naive) at(slot, off int) verbs.Remote {
	return n.t.plain.Region().At(uint64(slot*naiveStride + off))
}

// lock spins until the lock is ours, with pauses or without.
func (n *naive) lock(ctx context.Context, slot int, back *naiveBackoff) error {
	for {
		n.batch.CmpSwap(0, verbs.Signaled, n.at(slot, 0), 0, n.tag, n.mr.SGE(0, 8))
		if err := n.wait(ctx); err != nil {
			return err
		}
		held := verbs.Uint64(n.mr.Bytes(), 0) != 0
		if back != nil {
			back.after(held)
		}
		if !held {
			return nil
		}
	}
}

func (n *naive) unlock(ctx context.Context, slot int) error {
	n.batch.CmpSwap(0, verbs.Signaled, n.at(slot, 0), n.tag, 0, n.mr.SGE(0, 8))
	if err := n.wait(ctx); err != nil {
		return err
	}
	if verbs.Uint64(n.mr.Bytes(), 0) != n.tag {
		return errors.New("the lock was another's")
	}
	return nil
}

func (n *naive) readData(ctx context.Context, slot int) error {
	n.batch.Read(0, verbs.Signaled, n.at(slot, naiveData), n.mr.SGE(naiveData, recordSize))
	return n.wait(ctx)
}

func (n *naive) writeData(ctx context.Context, slot int) error {
	n.mr.Bytes()[naiveData]++
	n.batch.Write(0, verbs.Signaled, n.at(slot, naiveData), n.mr.SGE(naiveData, recordSize))
	return n.wait(ctx)
}

// read is lock, READ, unlock; three round trips.
func (n *naive) read(ctx context.Context, slot int) error {
	if err := n.lock(ctx, slot, nil); err != nil {
		return err
	}
	if err := n.readData(ctx, slot); err != nil {
		return err
	}
	return n.unlock(ctx, slot)
}

// change is lock, READ, WRITE, unlock; four round trips.
func (n *naive) change(ctx context.Context, slot int) error {
	if err := n.lock(ctx, slot, nil); err != nil {
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

// spin is change with an unlock that is a WRITE: a spin lock.
func (n *naive) spin(ctx context.Context, slot int, back *naiveBackoff) error {
	if err := n.lock(ctx, slot, back); err != nil {
		return err
	}
	if err := n.readData(ctx, slot); err != nil {
		return err
	}
	if err := n.writeData(ctx, slot); err != nil {
		return err
	}
	clear(n.mr.Bytes()[:8])
	n.batch.Write(0, verbs.Signaled, n.at(slot, 0), n.mr.SGE(0, 8))
	return n.wait(ctx)
}

// naiveBackoff pauses as clients of lockoffload do: longer when more than half
// of the last tries failed, shorter when less than a tenth did, with jitter.
type naiveBackoff struct {
	pause         time.Duration
	tries, failed int
}

func (b *naiveBackoff) after(failed bool) {
	const least, most, window = 20 * time.Microsecond, 5 * time.Millisecond, 8
	b.pause = max(b.pause, least)
	b.tries++
	if failed {
		b.failed++
	}
	if b.tries == window {
		switch {
		case b.failed*2 > b.tries:
			b.pause = min(b.pause*2, most)
		case b.failed*10 < b.tries:
			b.pause = max(b.pause/2, least)
		}
		b.tries, b.failed = 0, 0
	}
	if failed {
		time.Sleep(b.pause/2 + rand.N(b.pause+1))
	}
}
