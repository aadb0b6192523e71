package lockoffload

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// target is what clients lock: a region, and plain memory for those that know no regions.
type target struct {
	c, s   *rig.Host
	layout lockoffload.Layout
	srv    *lockoffload.Server
	agent  *lockoffload.Agent
	plain  *verbs.MR
	cq     *verbs.CQ // of the target's ends to those
	ids    atomic.Uint64
}

func newTarget(l lockoffload.Layout, lease time.Duration) (*target, error) {
	c, s, err := rig.NewHosts()
	if err != nil {
		return nil, err
	}
	t := &target{c: c, s: s, layout: l}
	all := verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}
	mr, err := s.PD.AllocMR(l.Bytes(), all)
	if err != nil {
		return nil, err
	}
	region, err := lockoffload.NewRegion(mr, l)
	if err != nil {
		return nil, err
	}
	if t.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: s.PD, Region: region, GID: s.GID, Lease: lease}); err != nil {
		return nil, err
	}
	if t.agent, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: s.PD, Region: region, GID: s.GID}); err != nil {
		return nil, err
	}
	if t.cq, err = s.PD.Device().CreateCQ(verbs.CQConfig{PollOnly: true}); err != nil {
		return nil, err
	}
	t.plain, err = s.PD.AllocMR(l.Slots*plainStride, all)
	return t, err
}

// end is a queue pair of a client, with its own completion queue.
func (t *target) end() (*verbs.QP, *verbs.CQ, error) {
	cq, err := t.c.PD.Device().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return nil, nil, err
	}
	qp, err := t.c.PD.CreateQP(verbs.QPConfig{SendCQ: cq, GID: t.c.GID})
	return qp, cq, err
}

func (t *target) newClient() (*lockoffload.Client, error) {
	qp, cq, err := t.end()
	if err != nil {
		return nil, err
	}
	place, err := t.srv.Admit(nil)
	if err != nil {
		return nil, err
	}
	if err := rig.Connect(qp, place.QP()); err != nil {
		return nil, err
	}
	return lockoffload.NewClient(lockoffload.Config{PD: t.c.PD, QP: qp, CQ: cq, Invite: place.Invite()})
}

func (t *target) newCaller() (*lockoffload.Caller, error) {
	id := t.ids.Add(1)
	return lockoffload.NewCaller(context.Background(), lockoffload.CallerConfig{
		PD: t.c.PD, Layout: t.layout, Limits: t.agent.Limits(), Client: id,
		Connect: func(context.Context) (*verbs.QP, *verbs.CQ, error) {
			qp, cq, err := t.end()
			if err != nil {
				return nil, nil, err
			}
			far, err := t.s.PD.CreateQP(t.agent.QPConfig())
			if err != nil {
				return nil, nil, err
			}
			return qp, cq, errors.Join(t.agent.Attach(id, far), rig.Connect(qp, far))
		}})
}
