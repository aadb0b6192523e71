package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// lockRig is a region with its server and its agent at one end of the wire, and
// a client of each kind at the other. It lives as long as the process does.
type lockRig struct {
	*lockTarget
	client *lockoffload.Client
	caller *lockoffload.Caller
	naive  *naive
	data   []byte
}

func newLockRig() func() (*lockRig, error) {
	return sync.OnceValues(func() (*lockRig, error) {
		t, err := newLockTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 2}, time.Minute)
		if err != nil {
			return nil, err
		}
		r := &lockRig{lockTarget: t, data: make([]byte, recordSize)}
		if r.client, _, err = t.newClient(lockoffload.Retry{}); err != nil {
			return nil, err
		}
		if r.caller, err = t.newCaller(); err != nil {
			return nil, err
		}
		if r.naive, err = t.newNaive(1); err != nil {
			return nil, err
		}
		// The record has its size from the start.
		_, err = r.client.Update(context.Background(), 0, r.change)
		return r, errors.Join(err, r.client.Flush(context.Background()))
	})
}

// lockTarget is what clients lock: a region, and plain memory for naive ones.
type lockTarget struct {
	c, s   *dcHost
	layout lockoffload.Layout
	srv    *lockoffload.Server
	agent  *lockoffload.Agent
	plain  *verbs.MR
	cq     *verbs.CQ // of the target's ends to naive clients
	ids    atomic.Uint64
}

func newLockTarget(l lockoffload.Layout, lease time.Duration) (*lockTarget, error) {
	c, s, err := newDCHosts()
	if err != nil {
		return nil, err
	}
	t := &lockTarget{c: c, s: s, layout: l}
	all := verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}
	mr, err := s.pd.AllocMR(l.Bytes(), all)
	if err != nil {
		return nil, err
	}
	region, err := lockoffload.NewRegion(mr, l)
	if err != nil {
		return nil, err
	}
	if t.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: s.pd, Region: region, GID: s.gid, Lease: lease, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if t.agent, err = lockoffload.NewAgent(lockoffload.AgentConfig{PD: s.pd, Region: region, GID: s.gid}); err != nil {
		return nil, err
	}
	if t.cq, err = s.pd.Device().CreateCQ(verbs.CQConfig{PollOnly: true}); err != nil {
		return nil, err
	}
	t.plain, err = s.pd.AllocMR(l.Slots*naiveStride, all)
	return t, err
}

// end is a queue pair of a client, with its own completion queue.
func (t *lockTarget) end() (*verbs.QP, *verbs.CQ, error) {
	cq, err := t.c.pd.Device().CreateCQ(verbs.CQConfig{})
	if err != nil {
		return nil, nil, err
	}
	qp, err := t.c.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: t.c.gid})
	return qp, cq, err
}

// newClient answers the client's queue pair too.
func (t *lockTarget) newClient(retry lockoffload.Retry) (*lockoffload.Client, *verbs.QP, error) {
	qp, cq, err := t.end()
	if err != nil {
		return nil, nil, err
	}
	place, err := t.srv.Admit(nil)
	if err != nil {
		return nil, nil, err
	}
	if err := connectQPs(qp, place.QP()); err != nil {
		return nil, nil, err
	}
	c, err := lockoffload.NewClient(lockoffload.Config{PD: t.c.pd, QP: qp, CQ: cq, Invite: place.Invite(), Retry: retry})
	return c, qp, err
}

func (t *lockTarget) newCaller() (*lockoffload.Caller, error) {
	id := t.ids.Add(1)
	return lockoffload.NewCaller(context.Background(), lockoffload.CallerConfig{
		PD: t.c.pd, Layout: t.layout, Limits: t.agent.Limits(), Client: id,
		Connect: func(context.Context) (*verbs.QP, *verbs.CQ, error) {
			qp, cq, err := t.end()
			if err != nil {
				return nil, nil, err
			}
			far, err := t.s.pd.CreateQP(t.agent.QPConfig())
			if err != nil {
				return nil, nil, err
			}
			return qp, cq, errors.Join(t.agent.Attach(id, far), connectQPs(qp, far))
		}})
}

func connectQPs(a, b *verbs.QP) error {
	ea, err := a.Endpoint()
	if err != nil {
		return err
	}
	eb, err := b.Endpoint()
	if err != nil {
		return err
	}
	return errors.Join(a.Connect(eb, verbs.ConnectConfig{}), b.Connect(ea, verbs.ConnectConfig{}))
}
