package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

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
			return func(context.Context) (float64, error) {
				p, err := pair()
				if err != nil {
					return 0, err
				}
				return f(p)
			}
		}
		return benchmark{name: name, unit: "us", baseline: "RC queue pair", target: measure.AtMost(limit), clocks: instructions,
			ours: on(func(p *dcPair) (float64, error) { return p.warm(op) }),
			base: on(func(p *dcPair) (float64, error) { return p.plain(op) })}
	}
	many := sync.OnceValues(newManyTargets)
	rate := func(name string, window int, pick func() func() int, target *measure.Target) benchmark {
		on := func(f func(m *manyTargets, ctx context.Context, window int, pick func() int) (float64, error)) pass {
			return func(ctx context.Context) (float64, error) {
				m, err := many()
				if err != nil {
					return 0, err
				}
				return f(m, ctx, window, pick())
			}
		}
		ours := (*manyTargets).dcRate
		if strings.HasSuffix(name, "_one_host") {
			ours = (*manyTargets).oneHostRate
		}
		return benchmark{name: name, unit: "op/s", baseline: "1000 RC connections", target: target, clocks: both,
			ours: on(ours), base: on((*manyTargets).rcRate)}
	}
	skewed := func() func() int { return zipf(targetCount, 0.99, 3) }
	uniform := func() func() int {
		r := rand.New(rand.NewPCG(1, 2))
		return func() int { return r.IntN(targetCount) }
	}
	list := append([]benchmark{
		warm("warm_write_lat_64B", dc.Write, 1.05),
		warm("warm_read_lat_64B", dc.Read, 1.05),
	}, attaching()...)
	return append(list, []benchmark{
		// One request for each target is outstanding on average; beside it fewer
		// and more.
		rate("targets_1000_zipf_rate", 1000, skewed, measure.AtLeast(0.7)),
		rate("targets_1000_zipf_rate_64", 64, skewed, nil),
		rate("targets_1000_zipf_rate_4000", 4000, skewed, nil),
		rate("targets_1000_uniform_rate", 1000, uniform, nil),
		// All targets are on one host, and sessions may not be taken up again soon
		// after another target of the same host was left.
		rate("targets_1000_zipf_rate_one_host", 1000, skewed, nil),
		{name: "targets_1000_qps", unit: "QPs", target: measure.AtMost(32), clocks: both,
			ours: func(context.Context) (float64, error) {
				m, err := many()
				if err != nil {
					return 0, err
				}
				return m.queuePairs()
			}},
		{name: "memory_per_idle_target", unit: "bytes", target: measure.AtMost(256), clocks: both,
			ours: func(context.Context) (float64, error) { return idleMemory() }},
	}...)
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

const (
	targetCount = 1000
	rateOps     = 8000
	maxWindow   = 4000
	// perTarget bounds what one target has outstanding.
	perTarget = 32
	// idleLease is how long a target keeps a session without a sign of life. A
	// parked one can be taken up again for half of it; a program with a thousand
	// targets comes back to most of them in less.
	idleLease = 2 * time.Minute
)

// manyTargets are as many targets as connections, on one host.
type manyTargets struct {
	c, s *dcHost
	// initiator parks without regard to hosts: the targets stand for a
	// thousand of them, and the lab's wire loses nothing and keeps the order.
	initiator *dc.Initiator
	peers     []*dc.Peer

	cautious      *dc.Initiator // with the default; made when it is needed
	cautiousPeers []*dc.Peer

	cq  *verbs.CQ
	rcs []*verbs.Batch
}

// manyContexts and the control queue pair make 32.
const manyContexts = 31

func newManyTargets() (*manyTargets, error) {
	c, s, err := newDCHosts()
	if err != nil {
		return nil, err
	}
	m := &manyTargets{c: c, s: s}
	if m.initiator, err = dc.NewInitiator(dc.InitiatorConfig{PD: c.pd, GID: c.gid, Contexts: manyContexts, Parking: dc.ParkAlways}); err != nil {
		return nil, err
	}
	if m.cq, err = c.pd.Device().CreateCQ(verbs.CQConfig{Depth: 2 * maxWindow}); err != nil {
		return nil, err
	}
	peerCQ, err := s.pd.Device().CreateCQ(verbs.CQConfig{Depth: 16, PollOnly: true})
	if err != nil {
		return nil, err
	}
	for range targetCount {
		t, err := dc.NewTarget(dc.TargetConfig{PD: s.pd, GID: s.gid, Responders: 2, Receives: 16, Lease: idleLease})
		if err != nil {
			return nil, err
		}
		p, err := m.initiator.Resolve(t.Address(), 0)
		if err != nil {
			return nil, err
		}
		m.peers = append(m.peers, p)
		b, err := m.connection(peerCQ)
		if err != nil {
			return nil, err
		}
		m.rcs = append(m.rcs, b)
	}
	// All are used once before anything is measured.
	next := 0
	all := func() int { next++; return next % targetCount }
	if _, err := m.dcRate(context.Background(), 64, all); err != nil {
		return nil, err
	}
	_, err = m.rcRate(context.Background(), 64, all)
	return m, err
}

func (m *manyTargets) connection(peerCQ *verbs.CQ) (*verbs.Batch, error) {
	a, err := m.c.pd.CreateQP(verbs.QPConfig{SendCQ: m.cq, GID: m.c.gid, MaxSendWR: perTarget, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	b, err := m.s.pd.CreateQP(verbs.QPConfig{SendCQ: peerCQ, GID: m.s.gid, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	for _, q := range [][2]*verbs.QP{{a, b}, {b, a}} {
		e, err := q[1].Endpoint()
		if err != nil {
			return nil, err
		}
		if err := q[0].Connect(e, verbs.ConnectConfig{}); err != nil {
			return nil, err
		}
	}
	return a.NewBatch(1)
}

// dcRate answers WRITEs of 64 bytes in a second, window of them outstanding, to
// targets that pick chooses.
func (m *manyTargets) dcRate(ctx context.Context, window int, pick func() int) (float64, error) {
	return m.rate(ctx, m.initiator, m.peers, window, pick)
}

func (m *manyTargets) oneHostRate(ctx context.Context, window int, pick func() int) (float64, error) {
	if m.cautious == nil {
		i, err := dc.NewInitiator(dc.InitiatorConfig{PD: m.c.pd, GID: m.c.gid, Contexts: manyContexts})
		if err != nil {
			return 0, err
		}
		m.cautious = i
		for _, p := range m.peers {
			q, err := i.Resolve(p.Address(), 0)
			if err != nil {
				return 0, err
			}
			m.cautiousPeers = append(m.cautiousPeers, q)
		}
	}
	return m.rate(ctx, m.cautious, m.cautiousPeers, window, pick)
}

func (m *manyTargets) rate(ctx context.Context, initiator *dc.Initiator, peers []*dc.Peer, window int, pick func() int) (float64, error) {
	r := dc.Request{Op: dc.Write, Local: m.c.mr.SGE(0, readSize), Remote: m.s.mr.Region().At(0)}
	cs := make([]dc.Completion, 32)
	return rateOf(window, pick, func(target int) error {
		r.ID = uint64(target)
		_, err := initiator.Post(peers[target], r)
		return err
	}, func(done func(target uint64)) error {
		n, err := initiator.Wait(ctx, cs)
		for i := range cs[:n] {
			done(cs[i].ID)
			err = errors.Join(err, cs[i].Err)
		}
		return err
	})
}

func (m *manyTargets) rcRate(ctx context.Context, window int, pick func() int) (float64, error) {
	wcs := make([]verbs.WC, 32)
	local, at := m.c.mr.SGE(0, readSize), m.s.mr.Region().At(0)
	return rateOf(window, pick, func(target int) error {
		b := m.rcs[target]
		b.Write(uint64(target), verbs.Signaled, at, local)
		_, err := b.Post()
		return err
	}, func(done func(target uint64)) error {
		n, err := m.cq.Wait(ctx, wcs)
		for i := range wcs[:n] {
			done(wcs[i].ID())
			err = errors.Join(err, wcs[i].Err())
		}
		return err
	})
}

// rateOf keeps window requests outstanding. A target that has its share already
// is passed over.
func rateOf(window int, pick func() int, post func(target int) error, wait func(done func(target uint64)) error) (float64, error) {
	var outstanding [targetCount]int
	finished := 0
	done := func(target uint64) {
		outstanding[target]--
		finished++
	}
	runtime.GC()
	start := time.Now()
	for posted := 0; finished < rateOps; {
		for posted < rateOps && posted-finished < window {
			target := pick()
			if outstanding[target] == perTarget {
				continue
			}
			if err := post(target); err != nil {
				return 0, err
			}
			outstanding[target]++
			posted++
		}
		if err := wait(done); err != nil {
			return 0, err
		}
	}
	return rateOps / time.Since(start).Seconds(), nil
}

// queuePairs is how many the initiator holds, all targets having been used.
func (m *manyTargets) queuePairs() (float64, error) {
	if s := m.initiator.Stats(); s.Attaches < targetCount {
		return 0, fmt.Errorf("%d attaches", s.Attaches)
	}
	return float64(m.initiator.QueuePairs()), nil
}

// zipf answers numbers below n with probabilities 1/k^s, the same ones each time
// for a seed.
func zipf(n int, s float64, seed uint64) func() int {
	sums := make([]float64, n)
	sum := 0.0
	for k := range sums {
		sum += math.Pow(float64(k+1), -s)
		sums[k] = sum
	}
	r := rand.New(rand.NewPCG(seed, 4))
	return func() int {
		i, _ := slices.BinarySearch(sums, r.Float64()*sum)
		return min(i, n-1)
	}
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
