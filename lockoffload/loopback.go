package lockoffload

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// loopback is the target's own path to its region: through the device, as for
// clients. One machine uses it at a time.
type loopback struct {
	region *Region
	qp     *verbs.QP
	line   *line
	mr     *verbs.MR
	made   closing.Stack
	pause  time.Duration // of machines that sleep
}

// newLoopback makes a loopback for a region of clients with a lease; 0: it is not known.
func newLoopback(pd *verbs.PD, gid verbs.GIDEntry, r *Region, lease time.Duration) (lb *loopback, err error) {
	lb = &loopback{region: r, pause: 2 * machine.ReadTime(lease)}
	defer func() {
		if err != nil {
			err = errors.Join(err, lb.made.Close())
			lb = nil
		}
	}()
	cq, err := pd.Device().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return lb, err
	}
	lb.made.Add(cq)
	if lb.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: gid}); err != nil {
		return lb, err
	}
	lb.made.Add(lb.qp)
	if err = connectToSelf(lb.qp); err != nil {
		return lb, err
	}
	if lb.mr, err = pd.AllocMR(r.l.LocalSize(), verbs.MRConfig{}); err != nil {
		return lb, err
	}
	lb.made.Add(lb.mr)
	if lb.line, err = newLine(lb.qp, cq, r.Remote(), func() {}); err != nil {
		return lb, err
	}
	lb.made.Add(closing.Func(lb.line.close))
	return lb, nil
}

func connectToSelf(qp *verbs.QP) error {
	self, err := qp.Endpoint()
	if err == nil {
		err = qp.Connect(self, verbs.ConnectConfig{})
	}
	return err
}

func (lb *loopback) close() error { return lb.made.Close() }

// loopbackTimeout is the time after which a machine on the own device is taken for one
// that will not end.
const loopbackTimeout = 10 * time.Second

// drive runs a machine of the target. After an error the loopback cannot be used again.
func (lb *loopback) drive(m machine.Machine) error {
	ctx, cancel := context.WithTimeout(context.Background(), loopbackTimeout)
	defer cancel()
	w := m.Base()
	w.L, w.Mem = lb.region.l, lb.mr.Bytes()
	for {
		v, err := m.Step()
		if v == machine.Sleep {
			time.Sleep(lb.pause)
			continue
		}
		if v != machine.Post {
			return err
		}
		f, err := lb.line.issue(ctx, w.Ops, lb.mr)
		if err == nil {
			err = lb.line.await(ctx, f)
		}
		if err != nil {
			return err
		}
	}
}

// recoverAgent gives back the locks that an earlier agent, which failed, left behind, and
// returns their number. No request of that agent is under way any more: its queue pair is
// gone.
func recoverAgent(pd *verbs.PD, gid verbs.GIDEntry, r *Region) (int, error) {
	lb, err := newLoopback(pd, gid, r, 0)
	if err != nil {
		return 0, err
	}
	m := machine.AgentRecovery(r.mr.Bytes())
	err = lb.drive(m)
	return m.Freed, errors.Join(err, lb.close())
}
