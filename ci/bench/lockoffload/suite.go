// Package lockoffload is the suite of package lockoffload: chains and locks beside
// what one would write without it, on the same kind of queue pair, with
// completions waited for in the same way.
//
// There are two such clients. What figures are judged on is direct: the lock
// command and a READ in one post, WRITE and unlock in one post. Beside it stands
// naive, which waits for the reply to each request, as the textbook has it.
package lockoffload

import (
	"context"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
)

var instructions = []string{harness.Instructions}

// Suite compares chains and locks of lockoffload. All of it runs in this process
// but for a holder that is killed, and Redis.
func Suite(harness.Env) []harness.Benchmark {
	r := rig.Lazy(newChainRig)
	list := []harness.Benchmark{readChain(r)}
	// A device of its own has no wire that could be delayed.
	if lab.In() {
		list = append(list, readChainDelay(r), changeDelay(r))
	}
	list = append(list, contended()...)
	return append(list, slotSize(), holderKilled(), manyKilled(), redisLock(r))
}

// slotSize is what a slot has beside one copy of its data, with as many clients as there
// may be: the other copy, locks, readers, padding.
func slotSize() harness.Benchmark {
	f := harness.Figure{Name: "bytes_per_slot", Unit: "bytes", Target: measure.AtMost(256)}
	return harness.Plain(f, instructions, harness.One(func(context.Context) (float64, error) {
		const slots = 1 << 10
		l := lockoffload.Layout{Slots: slots, Size: recordSize, Clients: 4096}
		all := lockoffload.Layout{Slots: 2 * slots, Size: recordSize, Clients: 4096}.Bytes() - l.Bytes()
		return float64(all)/slots - recordSize, nil
	}))
}

// Roles are what passes run as processes of their own.
var Roles = map[string]rig.Role{"lock-holder": holdLocks}
