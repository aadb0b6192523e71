package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/measure"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

func init() { suites["dc"] = dcSuite }

// dcSuite compares one initiator with connections. All of it runs in this
// process, blocks of both in turn, but for connections by librdmacm.
func dcSuite(env) []benchmark {
	instructions, both := []string{"instructions"}, []string{"instructions", "wall"}
	pair := sync.OnceValues(newDCPair)
	warm := func(name string, op dc.Op, limit float64) benchmark {
		on := func(f func(*dcPair) (float64, error)) pass {
			return onRig(pair, func(p *dcPair, _ context.Context) (float64, error) { return f(p) })
		}
		return benchmark{name: name, unit: "us", baseline: "RC queue pair", target: measure.AtMost(limit), clocks: instructions,
			ours: on(func(p *dcPair) (float64, error) { return p.warm(op) }),
			base: on(func(p *dcPair) (float64, error) { return p.plain(op) })}
	}
	list := append([]benchmark{
		warm("warm_write_lat_64B", dc.Write, 1.05),
		warm("warm_read_lat_64B", dc.Read, 1.05),
	}, attaching()...)
	list = append(list, rates(both)...)
	return append(list,
		benchmark{name: "memory_per_idle_target", unit: "bytes", target: measure.AtMost(256), clocks: both,
			ours: func(context.Context) (float64, error) { return idleMemory() }})
}

const dcBlock = 300

// dcHost is one end of the wire.
type dcHost struct {
	pd  *verbs.PD
	gid verbs.GIDEntry
	mr  *verbs.MR
}

func newDCHost(e lab.Endpoint) (*dcHost, error) {
	dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
	if err != nil {
		return nil, err
	}
	h := &dcHost{}
	if h.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if h.gid, err = dev.FindGID(verbs.GIDQuery{Addr: e.Addr}); err != nil {
		return nil, err
	}
	h.mr, err = h.pd.AllocMR(1<<16, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	return h, err
}

func newDCHosts() (c, s *dcHost, err error) {
	ce, se, err := endpoints()
	if err != nil {
		return nil, nil, err
	}
	if c, err = newDCHost(ce); err == nil {
		s, err = newDCHost(se)
	}
	return c, s, err
}

// dcPair is an initiator, a target, and a plain queue pair between the same
// hosts.
type dcPair struct {
	client, server *dcHost
	initiator      *dc.Initiator
	peer           *dc.Peer
	plainRig       *rig
}

func newDCPair() (*dcPair, error) {
	c, s, err := newDCHosts()
	if err != nil {
		return nil, err
	}
	p := &dcPair{client: c, server: s}
	target, err := dc.NewTarget(dc.TargetConfig{PD: s.pd, GID: s.gid, AccessKey: 1})
	if err != nil {
		return nil, err
	}
	if p.initiator, err = dc.NewInitiator(dc.InitiatorConfig{PD: c.pd, GID: c.gid}); err != nil {
		return nil, err
	}
	if p.peer, err = p.initiator.Resolve(target.Address(), 1); err != nil {
		return nil, err
	}
	p.plainRig, err = newRig()
	return p, err
}

// warm times one request after the other to an attached target.
func (p *dcPair) warm(op dc.Op) (float64, error) {
	r := dc.Request{Op: op, Local: p.client.mr.SGE(0, readSize), Remote: p.server.mr.Region().At(0)}
	var cs [1]dc.Completion
	one := func() error {
		_, n, err := p.initiator.PostPoll(p.peer, cs[:], 1000, r)
		for n == 0 && err == nil {
			n, err = p.initiator.PollSpin(cs[:], 1000)
		}
		return errors.Join(err, cs[0].Err)
	}
	if err := p.initiator.Attach(context.Background(), p.peer); err != nil {
		return 0, err
	}
	return timed(dcBlock, one)
}

// plain is the same by a batch of one and one crossing.
func (p *dcPair) plain(op dc.Op) (float64, error) {
	g := p.plainRig
	var wcs [1]verbs.WC
	at, local := g.peer.Region().At(0), g.mr.SGE(0, readSize)
	return timed(dcBlock, func() error {
		if op == dc.Read {
			g.batch.Read(1, verbs.Signaled, at, local)
		} else {
			g.batch.Write(1, verbs.Signaled, at, local)
		}
		return g.do(&wcs)
	})
}

// idleMemory is what an initiator's heap grows by for each target that is only
// known.
func idleMemory() (float64, error) {
	const n = 20_000
	c, s, err := newDCHosts()
	if err != nil {
		return 0, err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: c.pd, GID: c.gid})
	if err != nil {
		return 0, err
	}
	defer i.Close()
	t, err := dc.NewTarget(dc.TargetConfig{PD: s.pd, GID: s.gid})
	if err != nil {
		return 0, err
	}
	defer t.Close()
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	a := t.Address()
	for range n {
		a.Incarnation++ // another target
		if _, err := i.Resolve(a, 1); err != nil {
			return 0, fmt.Errorf("resolve: %w", err)
		}
	}
	per := (heap() - before) / n
	runtime.KeepAlive(i)
	return per, nil
}
