package lockoffload

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/verbs"
)

// plain is a client's queue pair to the target, with a completion queue of its
// own that it waits for as clients of lockoffload do. It is what naive and direct
// have in common.
type plain struct {
	t     *target
	cq    *verbs.CQ
	mr    *verbs.MR // lock word and data, as in a slot
	batch *verbs.Batch
	wcs   [2]verbs.WC
	tag   uint64
}

// A slot of these clients is a lock word, and data in a cache line of its own: as
// much data as our records have, without version and checksum, and one copy.
const (
	plainStride = 128
	plainData   = 64
)

func (t *target) newPlain(tag uint64) (*plain, error) {
	p := &plain{t: t, tag: tag}
	qp, cq, err := t.end()
	if err != nil {
		return nil, err
	}
	if t.plain == nil {
		if t.plain, err = t.s.PD.AllocMR(t.layout.Slots*plainStride, everything); err != nil {
			return nil, err
		}
	}
	p.cq = cq
	far, err := t.s.PD.CreateQP(verbs.QPConfig{SendCQ: t.cq, GID: t.s.GID, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	if err := rig.Connect(qp, far); err != nil {
		return nil, err
	}
	if p.mr, err = t.c.PD.AllocMR(plainStride, verbs.MRConfig{}); err != nil {
		return nil, err
	}
	p.batch, err = qp.NewBatch(len(p.wcs))
	return p, err
}

// at returns where a slot's lock word or data are.
func (p *plain) at(slot, off int) verbs.Remote {
	return p.t.plain.Region().At(uint64(slot*plainStride + off))
}

// lockWord and data are where replies come to, and what is written from.
func (p *plain) lockWord() verbs.SGE { return p.mr.SGE(0, 8) }
func (p *plain) data() verbs.SGE     { return p.mr.SGE(plainData, recordSize) }

// old returns the lock word that the last CMP_SWAP found.
func (p *plain) old() uint64 { return verbs.Uint64(p.mr.Bytes(), 0) }

// unlocked is how an unlock ended: err, or that the lock was not ours.
func (p *plain) unlocked(err error) error {
	if err == nil && p.old() != p.tag {
		return errors.New("the lock was another's")
	}
	return err
}

// compute is what callers do with the data: another first byte.
func (p *plain) compute() { p.mr.Bytes()[plainData]++ }

// wait returns when the one signaled request that is outstanding has completed,
// and with it all that were posted before.
func (p *plain) wait(ctx context.Context) error {
	if _, err := p.cq.Wait(ctx, p.wcs[:]); err != nil {
		return err
	}
	return p.wcs[0].Err()
}

func (p *plain) postAndWait(ctx context.Context) error {
	if _, err := p.batch.Post(); err != nil {
		return err
	}
	return p.wait(ctx)
}
