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
	mr     *verbs.MR // of the region
	srv    *lockoffload.Server
	agent  *lockoffload.Agent
	plain  *verbs.MR // nil until it is used
	cq     *verbs.CQ // of the target's ends to those
	ids    atomic.Uint64
}

// restful is the lease of clients that do not die. A minute is not enough: the instruction
// clock runs ahead while a guest waits for its host.
const restful = time.Hour

func newTarget(l lockoffload.Layout, lease time.Duration) (*target, error) {
	c, s, err := rig.NewHosts()
	if err != nil {
		return nil, err
	}
	t := &target{c: c, s: s, layout: l}
	if t.mr, err = s.PD.AllocMR(l.Bytes(), everything); err != nil {
		return nil, err
	}
	region, err := lockoffload.NewRegion(t.mr, l)
	if err != nil {
		return nil, err
	}
	if t.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: s.PD, Region: region, GID: s.GID, Lease: lease, Grace: -1}); err != nil {
		return nil, err
	}
	if t.agent, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: s.PD, Region: region, GID: s.GID}); err != nil {
		return nil, err
	}
	t.cq, err = s.PD.Device().CreateCQ(verbs.CQConfig{PollOnly: true})
	return t, err
}

// close ends what looks at the region, and frees that, for targets that do not live as long
// as the process.
func (t *target) close() error {
	return errors.Join(t.agent.Close(), t.srv.Close(), t.mr.Close())
}

var everything = verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}

// end returns a queue pair of a client, with its own completion queue.
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
	return lockoffload.NewClient(lockoffload.Config{PD: t.c.PD, QP: qp, CQ: cq, Session: place.Info()})
}

func (t *target) newCaller() (*lockoffload.Caller, error) {
	id, agent := t.ids.Add(1), t.agent
	return lockoffload.NewCaller(context.Background(), lockoffload.CallerConfig{
		PD: t.c.PD, Layout: t.layout, Limits: agent.Limits(), Client: id,
		Connect: func(context.Context) (*verbs.QP, *verbs.CQ, error) {
			qp, cq, err := t.end()
			if err != nil {
				return nil, nil, err
			}
			far, err := t.s.PD.CreateQP(agent.QPConfig())
			if err != nil {
				return nil, nil, err
			}
			return qp, cq, errors.Join(agent.Attach(id, far), rig.Connect(qp, far))
		}})
}
