package srd

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// device is what both drivers have of their device: a completion queue, and memory for packets, those
// that arrive in front of those that are sent.
type device struct {
	cq       *verbs.CQ
	d        *verbs.Dispatcher
	mr       *verbs.MR
	qps      []*verbs.QP
	stride   int      // of the memory of a packet
	receives int      // packets that may arrive
	free     []uint32 // slots to send from
}

// open creates the completion queue and the memory.
func (v *device) open(ep *Endpoint, h verbs.Handler, receives, slots, stride int) (err error) {
	v.receives, v.stride = receives, stride
	if v.cq, err = ep.cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: receives + slots, PollFor: ep.cfg.PollFor}); err != nil {
		return err
	}
	if v.d, err = v.cq.Dispatch(h, receives+slots); err != nil {
		return err
	}
	if v.mr, err = ep.cfg.PD.AllocMR((receives+slots)*stride, verbs.MRConfig{}); err != nil {
		return err
	}
	for i := range slots {
		v.free = append(v.free, uint32(i))
	}
	ep.d = v.d
	return nil
}

// create creates a queue pair.
func (v *device) create(ep *Endpoint, c verbs.QPConfig) (*verbs.QP, error) {
	c.SendCQ, c.GID, c.QKey = v.cq, ep.gid, ep.cfg.QKey
	qp, err := ep.cfg.PD.CreateQP(c)
	if err == nil {
		v.qps = append(v.qps, qp)
	}
	return qp, err
}

// memory returns the memory of n bytes of a packet that arrived.
func (v *device) memory(i, n int) []byte { return v.mr.Bytes()[i*v.stride:][:n] }

// sendAt returns the offset of a slot's memory.
func (v *device) sendAt(i uint32) int { return (v.receives + int(i)) * v.stride }

// full reports whether packets wait until others have completed.
func (v *device) full() bool { return len(v.free) == 0 }

// close closes what was created, which is not all if opening failed.
func (v *device) close(ep *Endpoint) error {
	var errs []error
	for _, qp := range v.qps {
		errs = append(errs, qp.Close())
	}
	if v.d != nil {
		errs = append(errs, v.d.Close())
	}
	errs = append(errs, ep.handles.close()...)
	if v.mr != nil {
		errs = append(errs, v.mr.Close())
	}
	if v.cq != nil {
		errs = append(errs, v.cq.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("srd: close: %w", err)
	}
	return nil
}
