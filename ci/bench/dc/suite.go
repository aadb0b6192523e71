// Package dc is the suite of package dc: one initiator beside connections.
package dc

import (
	"context"
	"maps"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
)

// Suite compares one initiator with connections. All of it runs in this process,
// blocks of both in turn, but for the rows of attaching.
func Suite(e harness.Env) []harness.Benchmark {
	pair := rig.Lazy(newPair)
	warm := func(name string, op dc.Op, limit float64) harness.Benchmark {
		f := harness.Figure{Name: name, Unit: "us", Target: measure.AtMost(limit)}
		return harness.Compare(f, instructions,
			pair.Pass(func(p *pairRig, _ context.Context) (float64, error) { return p.warm(op) }),
			harness.Side{Name: "RC queue pair", Run: pair.Pass(func(p *pairRig, _ context.Context) (float64, error) { return p.plain(op) })})
	}
	list := []harness.Benchmark{
		warm("warm_write_lat_64B", dc.Write, 1.05),
		warm("warm_read_lat_64B", dc.Read, 1.05),
		attaching(),
	}
	list = append(list, rates(e.Clock)...)
	memory := harness.Figure{Name: "memory_per_idle_target", Unit: "bytes", Target: measure.AtMost(256)}
	return append(list, harness.Plain(memory, instructions, harness.One(func(context.Context) (float64, error) { return idleMemory() })))
}

var instructions = []string{harness.Instructions}

// Roles are what passes run as processes of their own.
var Roles = func() map[string]rig.Role {
	all := maps.Clone(attachRoles)
	maps.Copy(all, connectRoles)
	return all
}()
