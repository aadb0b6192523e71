// Command bench measures this module against its peers, interleaved, in one
// run. It runs inside the lab, or on a machine with RDMA devices, where "make
// bench" starts it:
//
//	bench -suite verbs -clock instructions -o verbs-instructions.json
//	bench -merge -o verbs.json verbs-instructions.json verbs-wall.json
//	bench -plan 0.01 verbs.json
//	bench -report -o index.html
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/bench/cache"
	"github.com/goverbs/goverbs/ci/bench/cluster"
	"github.com/goverbs/goverbs/ci/bench/dc"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/lockoffload"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/ci/bench/native"
	"github.com/goverbs/goverbs/ci/bench/pacer"
	"github.com/goverbs/goverbs/ci/bench/processes"
	"github.com/goverbs/goverbs/ci/bench/srd"
	"github.com/goverbs/goverbs/ci/bench/verbs"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/procs"
)

var suites = map[string]func(harness.Env) []harness.Benchmark{
	"verbs": verbs.Suite, "verbs-native": verbs.Native, "dc": dc.Suite, "lockoffload": lockoffload.Suite, "pacer": pacer.Suite, "pacer-native": pacer.Native,
	"srd": srd.Suite, "srd-ecmp": srd.Ecmp, "cache": cache.Suite, "cache-native": cache.Native,
	"cluster": cluster.Suite, "native": native.Suite, "native-processes": processes.Suite,
}

// role is what this program does as one side of a pass.
func role(name string) rig.Role {
	for _, roles := range []map[string]rig.Role{verbs.Roles, dc.Roles, lockoffload.Roles, srd.Roles, cache.Roles} {
		if r := roles[name]; r != nil {
			return r
		}
	}
	return func(context.Context, string) error { return fmt.Errorf("no role %q", name) }
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	suite := flag.String("suite", "verbs", "`suite` to run: "+strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	out := flag.String("o", "", "JSON `file` to write")
	only := flag.String("only", "", "comma-separated `names` of benchmarks or figures")
	pairs := flag.Int("pairs", 0, "pairs of each benchmark; 0 means the clock's own number. Targets are judged with 6, 9, 12, 15, 17, 18 or 20")
	limit := flag.Duration("pass-limit", 3*time.Minute, "time that one pass may take, on the clock of the run")
	program := flag.String("rdmabench", "rdmabench", "our benchmark `program`")
	rdmacached := flag.String("rdmacached", "rdmacached", "the cache's `program`")
	hitRate := flag.String("hitrate", "hitrate", "the `program` of the cache's hit rates")
	simHCA := flag.String("simhca", "", "`file` simhca.so, for programs on simulated devices")
	shim := flag.String("shim", "", "`file` yield.so, for polled ping-pong on the instruction clock")
	as := flag.String("role", "", "run as one side of a pass")
	at := flag.String("at", "", "address of the pass")
	merge := flag.Bool("merge", false, "merge the JSON files named as arguments")
	plan := flag.Float64("plan", 0, "print how many pairs bring the interval's half-width down to this `ratio`, by the baselines in the JSON files named as arguments")
	page := flag.Bool("report", false, "write one page of all results: those of build/bench, and of docs/benchmarks for suites without")
	profiles := flag.String("profiles", "", "`folder` for a CPU profile of each benchmark")
	list := flag.Bool("list", false, "print the names of the suite's figures")
	flag.Parse()
	switch {
	case *as != "":
		return role(*as)(ctx, *at)
	case *merge:
		return mergeFiles(*out, flag.Args())
	case *page:
		return writeReport(*out)
	case *plan > 0:
		return planPairs(*plan, flag.Args())
	case suites[*suite] == nil:
		return fmt.Errorf("no suite %q", *suite)
	case *pairs < 0:
		return errors.New("-pairs is negative")
	}
	procs.SpareProcs()
	e := harness.Env{Clock: lab.Clock(), Topology: lab.Topology(), Rdmabench: *program, Rdmacached: *rdmacached, HitRate: *hitRate, SimHCA: *simHCA, Shim: *shim, PassLimit: *limit, Profiles: *profiles}
	if e.Topology == "" {
		e.Topology = "host"
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	e.Kernel = unix.ByteSliceToString(uts.Release[:])
	benchmarks := slices.DeleteFunc(suites[*suite](e), func(b harness.Benchmark) bool {
		return *only != "" && !b.Named(strings.Split(*only, ",")) || !b.On(e.Clock)
	})
	if *list {
		for _, b := range benchmarks {
			for _, f := range b.Figures {
				fmt.Println(f.Name)
			}
		}
		return nil
	}
	if *pairs == 0 {
		*pairs = harness.Pairs[e.Clock]
	}
	if e.Clock != harness.Wall {
		e.HostClock = rig.HostClock
		if err := rig.WarmSelf(); err != nil {
			return err
		}
	}
	var records []measure.Record
	err := harness.Run(ctx, e, benchmarks, *pairs, os.Stderr, func(r []measure.Record) error {
		records = r
		if *out == "" {
			return nil
		}
		return measure.WriteJSON(*out, r)
	})
	measure.WriteTable(os.Stdout, records)
	return err
}
