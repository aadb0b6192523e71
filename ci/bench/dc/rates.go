package dc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// rates compare one initiator that serves a thousand targets with as many RC
// connections, to the same addresses: each target on a host of its own, and all
// of them on one host.
func rates(clock string) []harness.Benchmark {
	// There is one set at a time: what the sessions of another do when their
	// leases end would be measured too.
	var last *manyTargets
	set := func(ends func() ([]lab.Endpoint, error)) func() (*manyTargets, error) {
		return func() (*manyTargets, error) {
			if last != nil {
				if err := last.close(); err != nil {
					return nil, err
				}
			}
			at, err := ends()
			if err != nil {
				return nil, err
			}
			last, err = newManyTargets(at)
			return last, err
		}
	}
	oneHost := func() ([]lab.Endpoint, error) {
		_, far, err := rig.Endpoints()
		return slices.Repeat([]lab.Endpoint{far}, targetCount), err
	}
	hosts := func() ([]lab.Endpoint, error) { return lab.AddAddrs(targetCount) }
	if lab.Topology() != "wire" {
		hosts = oneHost // addresses cannot be made up elsewhere
	}
	apart, together := rig.Lazy(set(hosts)), rig.Lazy(set(oneHost))
	rate := func(name string, many *rig.Once[*manyTargets], window int, pick func() func() int, target *measure.Target) harness.Benchmark {
		on := func(f func(m *manyTargets, ctx context.Context, window int, pick func() int) (float64, error)) harness.Pass {
			return many.Pass(func(m *manyTargets, ctx context.Context) (float64, error) { return f(m, ctx, window, pick()) })
		}
		return harness.Compare(harness.Figure{Name: name, Unit: "op/s", Target: target}, instructions,
			on((*manyTargets).dcRate), harness.Side{Name: "1000 RC connections", Run: on((*manyTargets).rcRate)})
	}
	skewed := func() func() int { return rig.Zipf(targetCount, 0.99, 3) }
	uniformOf := func(n int) func() func() int {
		return func() func() int {
			r := rand.New(rand.NewPCG(1, 2))
			return func() int { return r.IntN(n) }
		}
	}
	uniform := uniformOf(targetCount)
	// The wall clock has a target of its own.
	skewedTarget, uniformTarget := measure.AtLeast(0.8), measure.AtLeast(0.7)
	if clock == harness.Wall {
		skewedTarget = measure.AtLeast(0.7)
	}
	judged := func(name string, pick func() func() int, target *measure.Target) harness.Benchmark {
		b := rate(name, apart, 1000, pick, target)
		b.Judged = harness.Both
		return b
	}
	return []harness.Benchmark{
		// One request for each target is outstanding on average; below it fewer and
		// more.
		judged("targets_1000_zipf_rate", skewed, skewedTarget),
		rate("targets_1000_zipf_rate_64", apart, 64, skewed, nil),
		rate("targets_1000_zipf_rate_4000", apart, 4000, skewed, nil),
		judged("targets_1000_uniform_rate", uniform, uniformTarget),
		// The others are open and idle. At most half of what each may have is outstanding.
		rate("targets_10_uniform_rate", apart, 10*perTarget/2, uniformOf(10), nil),
		rate("targets_100_uniform_rate", apart, 1000, uniformOf(100), nil),
		withDead(apart),
		harness.Plain(harness.Figure{Name: "targets_1000_qps", Unit: "QPs", Target: measure.AtMost(32)}, instructions,
			apart.Pass(func(m *manyTargets, _ context.Context) (float64, error) { return m.queuePairs() })),
		// Sessions may not be taken up again soon after another target of the same
		// host was left.
		rate("targets_1000_zipf_rate_one_host", together, 1000, skewed, nil),
	}
}

const (
	targetCount = 1000
	maxWindow   = 4000
	// rateOps is how many requests of a pass are timed, after warmOps that are
	// not. The signs of life for all that is parked fall due while other passes
	// run, and the first requests to a target after such a pause bring them; so
	// each pass, of either side, begins like that, with the window full and the
	// same sequence of targets, and what is timed is the steady state.
	rateOps = 5000
	warmOps = 2000
	// perTarget bounds what one target has outstanding.
	perTarget = 32
	// manyContexts and the control queue pair make 32.
	manyContexts = 31
)

// manyTargets are as many targets as connections.
type manyTargets struct {
	c         *rig.Host
	initiator *dc.Initiator
	peers     []*dc.Peer
	dead      []*dc.Peer     // of targets that are not there any more
	at        []verbs.Remote // memory of each target

	cq  *verbs.CQ
	rcs []*verbs.Batch

	closers []io.Closer
}

// opened notes what close closes.
func (m *manyTargets) opened(c io.Closer) { m.closers = append(m.closers, c) }

func (m *manyTargets) close() error {
	var errs []error
	for _, c := range slices.Backward(m.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func newManyTargets(ends []lab.Endpoint) (*manyTargets, error) {
	near, _, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	m := &manyTargets{}
	if m.c, err = rig.NewHost(near); err != nil {
		return nil, err
	}
	hosts, err := newHostsAt(ends)
	if err != nil {
		return nil, err
	}
	if m.initiator, err = dc.NewInitiator(dc.InitiatorConfig{PD: m.c.PD, GID: m.c.GID, Contexts: manyContexts}); err != nil {
		return nil, err
	}
	m.opened(m.initiator)
	if m.cq, err = m.c.PD.Device().CreateCQ(verbs.CQConfig{Depth: 2 * maxWindow}); err != nil {
		return nil, err
	}
	m.opened(m.cq)
	for _, h := range hosts {
		t, err := dc.NewTarget(dc.TargetConfig{PD: h.PD, GID: h.GID, Responders: 2, Receives: 16})
		if err != nil {
			return nil, err
		}
		m.opened(t)
		p, err := m.initiator.Resolve(t.Address(), 0)
		if err != nil {
			return nil, err
		}
		m.peers = append(m.peers, p)
		m.at = append(m.at, h.MR.Region().At(0))
		b, err := m.connection(h)
		if err != nil {
			return nil, err
		}
		m.rcs = append(m.rcs, b)
	}
	for range deadCount {
		t, err := dc.NewTarget(dc.TargetConfig{PD: hosts[0].PD, GID: hosts[0].GID, Responders: 1, Receives: 16})
		if err != nil {
			return nil, err
		}
		p, err := m.initiator.Resolve(t.Address(), 0)
		if err = errors.Join(err, t.Close()); err != nil {
			return nil, err
		}
		m.dead = append(m.dead, p)
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

// newHostsAt opens each device once.
func newHostsAt(ends []lab.Endpoint) ([]*rig.Host, error) {
	first := make(map[string]*rig.Host)
	var out []*rig.Host
	for _, e := range ends {
		var err error
		if first[e.Device] == nil {
			if first[e.Device], err = rig.NewHost(e); err != nil {
				return nil, err
			}
		}
		h := *first[e.Device]
		if h.GID, err = h.PD.Device().FindGID(verbs.GIDQuery{Addr: e.Addr}); err != nil {
			return nil, err
		}
		out = append(out, &h)
	}
	return out, nil
}

func (m *manyTargets) connection(to *rig.Host) (*verbs.Batch, error) {
	a, err := m.c.PD.CreateQP(verbs.QPConfig{SendCQ: m.cq, GID: m.c.GID, MaxSendWR: perTarget, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	m.opened(a)
	idle, err := to.PD.Device().CreateCQ(verbs.CQConfig{Depth: 16, PollOnly: true})
	if err != nil {
		return nil, err
	}
	m.opened(idle)
	b, err := to.PD.CreateQP(verbs.QPConfig{SendCQ: idle, GID: to.GID, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return nil, err
	}
	m.opened(b)
	if err := rig.Connect(a, b); err != nil {
		return nil, err
	}
	return a.NewBatch(1)
}

// dcRate returns the WRITEs of 64 bytes in a second, window of them outstanding, to
// targets that pick chooses.
func (m *manyTargets) dcRate(ctx context.Context, window int, pick func() int) (float64, error) {
	r := dc.Request{Op: dc.Write, Local: m.c.MR.SGE(0, rig.ReadSize)}
	cs := make([]dc.Completion, 32)
	return rateOf(window, pick, func(target int) error {
		r.ID, r.Remote = uint64(target), m.at[target]
		_, err := m.initiator.Post(m.peers[target], r)
		return err
	}, func(done func(target uint64)) error {
		n, err := m.initiator.Wait(ctx, cs)
		for i := range cs[:n] {
			done(cs[i].ID)
			err = errors.Join(err, cs[i].Err)
		}
		return err
	})
}

func (m *manyTargets) rcRate(ctx context.Context, window int, pick func() int) (float64, error) {
	wcs := make([]verbs.WC, 32)
	local := m.c.MR.SGE(0, rig.ReadSize)
	return rateOf(window, pick, func(target int) error {
		b := m.rcs[target]
		b.Write(uint64(target), verbs.Signaled, m.at[target], local)
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

// rateOf keeps window requests outstanding until those that are timed have
// completed. A target that has its share already is passed over.
func rateOf(window int, pick func() int, post func(target int) error, wait func(done func(target uint64)) error) (float64, error) {
	var outstanding [targetCount]int
	posted, finished := 0, 0
	done := func(target uint64) {
		outstanding[target]--
		finished++
	}
	// until goes on until n requests have completed.
	until := func(n int) error {
		for finished < n {
			for posted-finished < window {
				target := pick()
				if outstanding[target] == perTarget {
					continue
				}
				if err := post(target); err != nil {
					return err
				}
				outstanding[target]++
				posted++
			}
			if err := wait(done); err != nil {
				return err
			}
		}
		return nil
	}
	runtime.GC()
	if err := until(warmOps); err != nil {
		return 0, err
	}
	start, before := time.Now(), finished
	if err := until(before + rateOps); err != nil {
		return 0, err
	}
	rate := float64(finished-before) / time.Since(start).Seconds()
	for finished < posted {
		if err := wait(done); err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// queuePairs returns how many the initiator holds, all targets having been used.
func (m *manyTargets) queuePairs() (float64, error) {
	if s := m.initiator.Stats(); s.Attaches < targetCount {
		return 0, fmt.Errorf("%d attaches", s.Attaches)
	}
	return float64(m.initiator.QueuePairs()), nil
}
