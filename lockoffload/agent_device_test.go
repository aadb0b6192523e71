//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// agentRig is a region with an agent at one end of the wire; its clients are at the other.
type agentRig struct {
	rig
	layout lockoffload.Layout
	agent  *lockoffload.Agent
	ids    atomic.Uint64

	mu    sync.Mutex
	links []io.Closer // in the order in which they are to be closed
}

func newAgentRig(t *testing.T, l lockoffload.Layout, change func(*lockoffload.AgentConfig)) *agentRig {
	t.Helper()
	return newLeasedAgentRig(t, l, long, change)
}

func newLeasedAgentRig(t *testing.T, l lockoffload.Layout, lease time.Duration, change func(*lockoffload.AgentConfig)) *agentRig {
	t.Helper()
	requireWire(t)
	r := &agentRig{rig: rig{t: t, a: open(t, wire[0]), b: open(t, wire[1])}, layout: l}
	mr, err := r.b.pd.AllocMR(l.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	r.reg, err = lockoffload.NewRegion(mr, l)
	require.NoError(t, err)
	r.reg.CountFromZero()
	require.NoError(t, r.reg.LeftLocked(l.Slots-1)) // by an agent before
	// A second, which is the default, may pass for no reason but a busy machine.
	cfg := lockoffload.AgentConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, MaxWait: stuck}
	if change != nil {
		change(&cfg)
	}
	r.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: r.b.pd, Region: r.reg, GID: r.b.gid, Lease: lease, Grace: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.srv.Close()) })
	r.agent, err = lockoffload.NewAgent(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.agent.Close()) })
	t.Cleanup(func() { // after the callers, which use them
		for _, l := range r.links {
			require.NoError(t, l.Close())
		}
	})
	return r
}

// agentConnect configures queue pairs to agents: rxe takes 7 retries, the default, for any
// number, and the default timeout for one that a busy machine keeps.
var agentConnect = verbs.ConnectConfig{AckTimeout: 256 * time.Millisecond, Retries: 3}

// link makes a connected pair of queue pairs, the target's attached as client.
func (r *agentRig) link(client uint64) (qp *verbs.QP, cq *verbs.CQ, err error) {
	cq, err = r.a.dev.CreateCQ(verbs.CQConfig{})
	if err != nil {
		return nil, nil, err
	}
	if qp, err = r.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, GID: r.a.gid}); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.links = append(r.links, qp, cq)
	r.mu.Unlock()
	far, err := r.b.pd.CreateQP(r.agent.QPConfig())
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.links = append(r.links, far)
	r.mu.Unlock()
	ea, aerr := qp.Endpoint()
	eb, berr := far.Endpoint()
	return qp, cq, errors.Join(aerr, berr, r.agent.Attach(client, far),
		far.Connect(ea, agentConnect), qp.Connect(eb, agentConnect))
}

func (r *agentRig) caller(change func(*lockoffload.CallerConfig)) *lockoffload.Caller {
	r.t.Helper()
	id := r.ids.Add(1)
	cfg := lockoffload.CallerConfig{PD: r.a.pd, Layout: r.layout, Limits: r.agent.Limits(), Client: id,
		Connect: func(context.Context) (*verbs.QP, *verbs.CQ, error) { return r.link(id) }}
	if change != nil {
		change(&cfg)
	}
	c, err := lockoffload.NewCaller(context.Background(), cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, c.Close()) })
	return c
}

// A call whose context has ended sends nothing, and says that nothing happened.
func TestChainOfAnEndedContext(t *testing.T) {
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	c := r.caller(nil)
	ctx, end := context.WithCancel(within(t, stuck))
	end()
	for range 20 {
		_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, lockoffload.ErrOutcomeUnknown)
	}
	require.Zero(t, r.version(c, 0))
	require.EqualValues(t, 1, r.agent.Stats().Accepted, "the one that looked")
}

// When Close of an agent returns nothing of a chain is written any more, though its clients
// go on sending by queue pairs that are still open.
func TestNothingIsWrittenBehindClose(t *testing.T) {
	const slots = 4
	ctx, giveUp := context.WithCancel(within(t, stuck))
	r := newAgentRig(t, lockoffload.Layout{Slots: slots, Size: 8}, nil)
	var wg sync.WaitGroup
	for range 3 {
		c := r.caller(nil)
		for slot := range slots {
			wg.Go(func() {
				for err := error(nil); err == nil; {
					ch := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{writeOf(0, "x")}}
					if _, err = c.Do(ctx, &ch); errors.Is(err, lockoffload.ErrBusy) { // it is about to be closed
						err = nil
					}
				}
			})
		}
	}
	require.Eventually(t, func() bool { return r.agent.Stats().Done > 50 }, stuck, time.Millisecond)
	require.ErrorIs(t, r.agent.Close(), verbs.ErrInUse)
	look := func() (v [slots][2]uint64) {
		for slot := range v {
			v[slot] = r.reg.Versions(slot)
		}
		return v
	}
	before := look()
	time.Sleep(50 * time.Millisecond)
	giveUp()
	wg.Wait()
	require.Equal(t, before, look())
}

func readOf(record, size int) lockoffload.Access {
	return lockoffload.Access{Kind: lockoffload.AccessRead, Record: record, Data: make([]byte, size)}
}

func writeOf(record int, data string) lockoffload.Access {
	return lockoffload.Access{Kind: lockoffload.AccessWrite, Record: record, Data: []byte(data)}
}

func compareWith(record int, version uint64) lockoffload.Access {
	return lockoffload.Access{Kind: lockoffload.AccessCompare, Record: record, Version: version}
}

func TestAgentChain(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 32, Records: 2}, nil)
	c := r.caller(nil)
	ch := lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{writeOf(0, "one"), writeOf(1, "two"), readOf(0, 32)}}
	res, err := c.Do(ctx, &ch)
	require.NoError(t, err)
	require.Equal(t, 1, res.Tries)
	require.EqualValues(t, 1, ch.Accesses[0].Version)
	require.Equal(t, "one", string(ch.Accesses[2].Data))

	for _, shared := range []bool{true, false} {
		ch = lockoffload.Chain{Slot: 1, Shared: shared, Accesses: []lockoffload.Access{readOf(0, 32), readOf(1, 32), compareWith(1, 1)}}
		_, err = c.Do(ctx, &ch)
		require.NoError(t, err)
		require.Equal(t, "one", string(ch.Accesses[0].Data))
		require.Equal(t, "two", string(ch.Accesses[1].Data))
	}

	ch = lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{compareWith(1, 7), writeOf(0, "three"), readOf(0, 32)}}
	_, err = c.Do(ctx, &ch)
	require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
	require.EqualValues(t, 1, ch.Accesses[0].Version, "the version that it has")
	require.Equal(t, "one", string(ch.Accesses[2].Data), "nothing was written")

	for _, bad := range []lockoffload.Chain{
		{Slot: 2}, {Slot: -1}, {Accesses: []lockoffload.Access{readOf(2, 1)}}, {Accesses: make([]lockoffload.Access, 1)},
		{Shared: true, Accesses: []lockoffload.Access{writeOf(0, "x")}},
		{Accesses: []lockoffload.Access{writeOf(0, string(make([]byte, 33)))}},
		{Accesses: []lockoffload.Access{readOf(0, 32), readOf(0, 32), readOf(0, 32), readOf(0, 32), readOf(0, 32)}},
	} {
		_, err := c.Do(ctx, &bad)
		require.ErrorIs(t, err, lockoffload.ErrConfig)
	}
	require.EqualValues(t, 3, r.agent.Stats().Done)
}

func TestAgentManyCallers(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 4, Size: 8}, nil)
	const callers, goroutines, each = 4, 4, 25
	var wg sync.WaitGroup
	for range callers {
		c := r.caller(nil)
		for range goroutines {
			wg.Go(func() {
				for i := range each {
					ch := lockoffload.Chain{Slot: i % 4, Accesses: []lockoffload.Access{writeOf(0, "x")}}
					if _, err := c.Do(ctx, &ch); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	c, total := r.caller(nil), uint64(0)
	for slot := range 4 {
		ch := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{readOf(0, 8)}}
		_, err := c.Do(ctx, &ch)
		require.NoError(t, err)
		total += ch.Accesses[0].Version
	}
	require.EqualValues(t, callers*goroutines*each, total)
}

func TestAgentAllocatesNothing(t *testing.T) {
	ctx := within(t, stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: 1, Size: 8}, nil)
	c := r.caller(nil)
	data := make([]byte, 8)
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{{Kind: lockoffload.AccessWrite, Data: data}}}
	n := uint64(0)
	allocs := testing.AllocsPerRun(500, func() {
		n++
		binary.LittleEndian.PutUint64(data, n)
		if _, err := c.Do(ctx, &ch); err != nil {
			t.Error(err)
		}
	})
	require.Less(t, allocs, 0.1)
}
