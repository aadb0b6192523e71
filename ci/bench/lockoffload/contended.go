package lockoffload

import (
	"fmt"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
)

// What the baselines of contended rows are called.
const (
	crowdDirect = "CMP_SWAP+READ with backoff, WRITE+unlock"
	crowdNaive  = "CMP_SWAP spin, READ, WRITE, CMP_SWAP"
)

// contended are locks under contention: so many clients, each with a queue pair
// of its own, change a record of 64 bytes in one slot after another, without a
// pause between them. A change counts at the reply to its unlock, on all sides.
// Each row names the form of the change:
//
//   - update is Client.Update, one-sided and unfair;
//   - agent are whole chains that Client.Do gives to the target's agent, and
//     agent_fair such chains in fair mode;
//   - handoff is lock, READ and WRITE, unlock from afar, in the order in which
//     clients came to the slot, as the agent tells each that it is its turn;
//   - direct is the baseline itself.
//
// With a delay a change takes round trips instead of the CPU.
func contended() []harness.Benchmark {
	r := rig.Lazy(newCrowd)
	var list []harness.Benchmark
	for _, n := range []int{2, 8, crowdMost} {
		list = append(list, crowdOf(r, n))
		if lab.In() {
			list = append(list, crowdDelay(r, n))
		}
	}
	return append(list, crowdOnOne(r))
}

// Values of a pass.
const (
	goodput = iota // changes in a second
	tail           // 99th percentile over the median of what a change takes
	hotTail        // the same on the slot that most clients want
	jain           // Jain's index of the clients' goodput: 1 when all got the same
)

func crowdOf(r *rig.Once[*crowdRig], n int) harness.Benchmark {
	side := func(name string, op crowdOp) harness.Side { return harness.Side{Name: name, Run: r.Values(op.by(n))} }
	b := harness.Benchmark{Name: fmt.Sprintf("contended_%d", n), Judged: instructions, Sides: []harness.Side{
		side("update", (*crowdRig).update), side("agent", (*crowdRig).do), side("agent_fair", (*crowdRig).doFair), side("handoff", (*crowdRig).handOff),
		side(crowdDirect, (*crowdRig).change), side(crowdNaive, (*crowdRig).spin),
	}}
	row := func(of, what string, value int, baseline, addition string, target *measure.Target) {
		name := of
		switch of {
		case crowdDirect:
			name = "direct"
		case "handoff":
			name = "handoff_zipf"
		}
		unit := "1"
		if value == goodput {
			unit = "op/s"
		}
		b.Figures = append(b.Figures, harness.Figure{Name: fmt.Sprintf("contended_%s_%s_%d%s", name, what, n, addition), Unit: unit,
			Of: of, Baseline: baseline, Value: value, Target: target})
	}
	for _, of := range []string{"update", "agent"} {
		row(of, "goodput", goodput, crowdDirect, "", measure.AtLeast(2))
		row(of, "goodput", goodput, crowdNaive, "_naive", nil)
	}
	row("update", "p99_over_p50", tail, "", "", nil)
	row("update", "jain", jain, "", "", nil)
	for _, of := range []string{"agent_fair", "handoff"} {
		tails, equal := measure.AtMost(5), measure.AtLeast(0.95)
		if of == "handoff" { // judged at one slot, see crowdOnOne
			tails, equal = nil, nil
		}
		row(of, "goodput", goodput, crowdDirect, "", nil)
		row(of, "p99_over_p50", tail, "", "", tails)
		row(of, "jain", jain, "", "", equal)
	}
	if n == crowdMost {
		row("handoff", "hot_p99_over_p50", hotTail, "", "", nil)
	}
	row(crowdDirect, "p99_over_p50", tail, "", "", nil)
	row(crowdDirect, "jain", jain, "", "", nil)
	return b
}

// crowdOnOne is the fairness of locks that are taken one by one: all clients want one slot,
// for 20 s, so whatever a client waits for, it waits for the others. Among many slots that
// are not wanted equally median and 99th percentile are of different queues, however fair
// each of them is.
func crowdOnOne(r *rig.Once[*crowdRig]) harness.Benchmark {
	side := func(name string, op crowdOp) harness.Side {
		return harness.Side{Name: name, Run: r.Values(op.on(0).lasting(crowdMost, 20*crowdTime))}
	}
	return harness.Benchmark{Name: "contended_one_slot", Judged: instructions,
		Sides: []harness.Side{side("handoff", (*crowdRig).handOff), side(crowdDirect, (*crowdRig).change)},
		Figures: []harness.Figure{
			{Name: "contended_one_slot_goodput", Unit: "op/s", Of: "handoff", Baseline: crowdDirect, Value: goodput},
			{Name: "contended_p99_over_p50", Unit: "1", Of: "handoff", Value: tail, Target: measure.AtMost(5)},
			{Name: "contended_jain", Unit: "1", Of: "handoff", Value: jain, Target: measure.AtLeast(0.95)},
			{Name: "contended_direct_one_slot_p99_over_p50", Unit: "1", Of: crowdDirect, Value: tail},
			{Name: "contended_direct_one_slot_jain", Unit: "1", Of: crowdDirect, Value: jain},
		}}
}

// crowdDelay is crowdOf on a wire with delay.
func crowdDelay(r *rig.Once[*crowdRig], n int) harness.Benchmark {
	side := func(name string, op crowdOp) harness.Side {
		return harness.Side{Name: name, Run: rig.Late(r.Values(op.by(n)))}
	}
	target := measure.AtLeast(map[int]float64{2: 1, 8: 1.3, crowdMost: 2}[n])
	b := harness.Benchmark{Name: fmt.Sprintf("contended_delay_%d", n), Judged: instructions, Sides: []harness.Side{
		side("update", (*crowdRig).update), side("agent", (*crowdRig).do),
		side(crowdDirect, (*crowdRig).change), side(crowdNaive, (*crowdRig).spin),
	}}
	for _, of := range []string{"update", "agent"} {
		name := fmt.Sprintf("contended_%s_goodput_delay_%d", of, n)
		b.Figures = append(b.Figures,
			harness.Figure{Name: name, Unit: "op/s", Of: of, Baseline: crowdDirect, Target: target},
			harness.Figure{Name: name + "_naive", Unit: "op/s", Of: of, Baseline: crowdNaive})
	}
	return b
}
