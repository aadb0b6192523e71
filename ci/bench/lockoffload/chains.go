package lockoffload

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/lockoffload"
)

const (
	chainBlock = 60 // operations of one pass, of one client alone
	recordSize = 64
)

// What the baselines do, as records name them.
const (
	directRead   = "CMP_SWAP+READ, unlock"
	naiveRead    = "CMP_SWAP, READ, CMP_SWAP"
	directChange = "CMP_SWAP+READ, WRITE+unlock"
	directEarly  = "CMP_SWAP+READ, and WRITE+unlock posted"
	naiveChange  = "CMP_SWAP, READ, WRITE, CMP_SWAP"
)

// readChain is a record that is read under its lock.
func readChain(r *rig.Once[*chainRig]) harness.Benchmark {
	return harness.Benchmark{Name: "read_chain", Judged: instructions,
		Sides: []harness.Side{
			{Name: "ours", Run: r.Pass((*chainRig).readChain)},
			{Name: directRead, Run: r.Pass((*chainRig).directRead)},
			{Name: naiveRead, Run: r.Pass((*chainRig).naiveRead)},
		},
		Figures: []harness.Figure{
			{Name: "read_chain", Unit: "us", Of: "ours", Baseline: directRead, Target: measure.AtMost(0.45)},
			{Name: "read_chain_naive", Unit: "us", Of: "ours", Baseline: naiveRead},
		}}
}

// readChainDelay is the same on a wire with delay. One round trip cannot be less than
// half of the two that the good baseline takes: what is judged is the naive client's
// three.
func readChainDelay(r *rig.Once[*chainRig]) harness.Benchmark {
	b := delayed(readChain(r))
	b.Figures[0].Target, b.Figures[1].Target = nil, measure.AtMost(0.34)
	return b
}

// changeDelay is a record that is changed under its lock, on a wire with delay:
// until the reply to the unlock, until the caller goes on (both sides post WRITE
// and unlock and do not wait for them), and by the target's agent. The naive client has
// no moment before the end at which it would go on. The good baseline takes as many round
// trips as an update: the naive client's are judged.
func changeDelay(r *rig.Once[*chainRig]) harness.Benchmark {
	return delayed(harness.Benchmark{Name: "rmw",
		Sides: []harness.Side{
			{Name: "update", Run: r.Pass((*chainRig).update)},
			{Name: "visible", Run: r.Pass((*chainRig).updateVisible)},
			{Name: "agent", Run: r.Pass((*chainRig).agentChain)},
			{Name: directChange, Run: r.Pass((*chainRig).directChange)},
			{Name: directEarly, Run: r.Pass((*chainRig).directVisible)},
			{Name: naiveChange, Run: r.Pass((*chainRig).naiveChange)},
		},
		Figures: []harness.Figure{
			{Name: "rmw", Unit: "us", Of: "update", Baseline: directChange},
			{Name: "rmw_visible", Unit: "us", Of: "visible", Baseline: directEarly},
			{Name: "agent_chain", Unit: "us", Of: "agent", Baseline: directChange},
			{Name: "rmw_naive", Unit: "us", Of: "update", Baseline: naiveChange, Target: measure.AtMost(0.53)},
			{Name: "rmw_visible_naive", Unit: "us", Of: "visible", Baseline: naiveChange, Target: measure.AtMost(0.31)},
			{Name: "agent_chain_naive", Unit: "us", Of: "agent", Baseline: naiveChange, Target: measure.AtMost(0.30)},
		}})
}

// delayed is the benchmark on a wire with delay, where a chain takes round trips
// and not the CPU. The delay follows the instruction clock too.
func delayed(b harness.Benchmark) harness.Benchmark {
	b.Judged = harness.Both
	b.Name += "_delay"
	for i := range b.Sides {
		b.Sides[i].Run = rig.Late(b.Sides[i].Run)
	}
	for i := range b.Figures {
		f := &b.Figures[i]
		if base, naive := strings.CutSuffix(f.Name, "_naive"); naive {
			f.Name = base + "_delay_naive"
		} else {
			f.Name += "_delay"
		}
	}
	return b
}

// chainRig is a region with its server and its agent at one end of the wire, and
// a client of each kind at the other. It lives as long as the process does.
type chainRig struct {
	*target
	client *lockoffload.Client
	caller *lockoffload.Caller
	direct *direct
	naive  *naive
	data   []byte
	async  lockoffload.Chain
}

func newChainRig() (*chainRig, error) {
	t, err := newTarget(lockoffload.Layout{Slots: 1, Size: recordSize, Clients: 2}, restful)
	if err != nil {
		return nil, err
	}
	r := &chainRig{target: t, data: make([]byte, recordSize)}
	if r.client, err = t.newClient(); err != nil {
		return nil, err
	}
	if r.caller, err = t.newCaller(); err != nil {
		return nil, err
	}
	plain, err := t.newPlain(1)
	if err != nil {
		return nil, err
	}
	r.direct, r.naive = &direct{plain: plain}, &naive{plain}
	// The record has its size from the start.
	_, err = r.client.Update(context.Background(), 0, r.change)
	r.async = lockoffload.Chain{Async: true, Accesses: []lockoffload.Access{{Kind: lockoffload.AccessRead}, {Kind: lockoffload.AccessWrite}}}
	r.async.Change = func(a []lockoffload.Access) (err error) {
		a[1].Data, err = r.change(a[0].Data)
		return err
	}
	return r, err
}

// readChain returns the time of a read that nothing of another's critical section shows in.
func (r *chainRig) readChain(ctx context.Context) (float64, error) {
	dst := make([]byte, recordSize)
	return rig.Timed(chainBlock, func() error {
		_, res, err := r.client.Read(ctx, 0, dst)
		return errors.Join(err, wantForm(res, lockoffload.ProtocolRead))
	})
}

// update returns the time of a change until the reply to its unlock command.
func (r *chainRig) update(ctx context.Context) (float64, error) {
	return rig.Timed(chainBlock, func() error {
		_, err := r.client.Update(ctx, 0, r.change)
		return err
	})
}

// updateVisible returns the time until the caller goes on that does not wait for WRITE and
// unlock. The rest of the change is waited for between two of them, outside of the time.
func (r *chainRig) updateVisible(ctx context.Context) (float64, error) {
	ns := make([]int64, chainBlock)
	for i := range ns {
		start := time.Now()
		res, err := r.client.Do(ctx, &r.async)
		ns[i] = int64(time.Since(start))
		if err == nil {
			err = res.Commit.Wait(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
	return rig.MedianMicros(ns), nil
}

// change is what callers compute: the record that was read, with another first
// byte.
func (r *chainRig) change(old []byte) ([]byte, error) {
	n := copy(r.data, old)
	r.data[0]++
	return r.data[:max(n, recordSize)], nil
}

// agentChain returns the time of lock, READ, WRITE, unlock by the target's agent.
func (r *chainRig) agentChain(ctx context.Context) (float64, error) {
	ch := lockoffload.Chain{Accesses: []lockoffload.Access{
		{Kind: lockoffload.AccessRead, Data: make([]byte, recordSize)},
		{Kind: lockoffload.AccessWrite, Data: r.data},
	}}
	return rig.Timed(chainBlock, func() error {
		res, err := r.caller.Do(ctx, &ch)
		return errors.Join(err, wantForm(res, lockoffload.ProtocolAgent))
	})
}

func wantForm(res lockoffload.Result, f lockoffload.Protocol) error {
	if res.Protocol != f || res.Tries != 1 {
		return errors.New("carried out as " + res.Protocol.String() + ", or tried again")
	}
	return nil
}

func (r *chainRig) directRead(ctx context.Context) (float64, error) {
	return rig.Timed(chainBlock, func() error { return r.direct.read(ctx, 0) })
}

func (r *chainRig) directChange(ctx context.Context) (float64, error) {
	return rig.Timed(chainBlock, func() error { return r.direct.change(ctx, 0) })
}

// directVisible returns the time until WRITE and unlock are posted. They are waited for
// between two changes, outside of the time.
func (r *chainRig) directVisible(ctx context.Context) (float64, error) {
	ns := make([]int64, chainBlock)
	for i := range ns {
		start := time.Now()
		err := r.direct.begin(ctx, 0)
		ns[i] = int64(time.Since(start))
		if err == nil {
			err = r.direct.wait(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
	return rig.MedianMicros(ns), nil
}

func (r *chainRig) naiveRead(ctx context.Context) (float64, error) {
	return rig.Timed(chainBlock, func() error { return r.naive.read(ctx, 0) })
}

func (r *chainRig) naiveChange(ctx context.Context) (float64, error) {
	return rig.Timed(chainBlock, func() error { return r.naive.change(ctx, 0) })
}
