package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// faults are parts of the names of tests in which something fails, ends or comes late.
const faults = "Kill|Dead|Dies|Death|Crash|Loss|Lost|Lossy|Drop|Fault|Fail|Error|Broken|Break|Poison|Stop|Stall|Hang|Silent|Cut|Outage|Blackhole|" +
	"Restart|Comes|Goes|Leave|Recover|Heal|Mend|Retr|Again|Lease|Expire|Revoke|Abort|Cancel|ContextEnds|GivenUp|Close|Late|Torn|Torture|Random|Hostile|Attack"

// draw is the fault tests of one package in one of its jobs.
type draw struct {
	job *job
	pkg string // as in the job's tests
}

// torture runs fault tests until a time has passed: in each round those of one package in one job, both
// drawn, in random order. A round has a seed of its own, which is printed, and from which the seed of
// the next one follows: with the seed of a round that failed, another run begins with this round.
func (r *runner) torture(ctx context.Context, jobs []*job) error {
	r.runAll(ctx, slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return !j.first }))
	if len(r.failures) > 0 {
		return fmt.Errorf("%d programs were not built", len(r.failures))
	}
	draws := r.draws(ctx, jobs)
	if len(draws) == 0 {
		return errors.New("no job has a fault test")
	}
	seed := r.o.seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	failures := make(map[string]string) // the commands that repeat them
	start, rounds := time.Now(), 0
	for ; time.Since(start) < r.o.torture && ctx.Err() == nil; rounds++ {
		from := rand.New(rand.NewPCG(seed, 0))
		d := draws[from.IntN(len(draws))]
		repeat := fmt.Sprintf("make torture MINUTES=1 SEED=%d", seed)
		fmt.Printf("## round %d, %.0f s: %s of %s; %s repeats it\n", rounds+1, time.Since(start).Seconds(), d.pkg, d.job.name, repeat)
		j := d.round(seed)
		j.name = fmt.Sprintf("torture-%d", rounds+1)
		r.failures, r.failed = map[string]error{}, nil
		r.runJob(ctx, j)
		if r.failures[j.name] != nil && ctx.Err() == nil {
			failures[strings.Join(r.failedTests(j), " ")+" ("+d.job.name+")"] = repeat
		}
		seed = from.Uint64()
	}
	fmt.Printf("## %d rounds\n", rounds)
	for _, tests := range slices.Sorted(maps.Keys(failures)) {
		fmt.Printf("%s failed: %s\n", tests, failures[tests])
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d rounds failed", len(failures))
	}
	return ctx.Err()
}

// draws returns what can be drawn. Where a job selects tests itself there is nothing to choose.
func (r *runner) draws(ctx context.Context, jobs []*job) (out []draw) {
	for _, j := range jobs {
		if j.tests == nil || j.tests.programs.name == "" {
			continue
		}
		for _, p := range j.tests.packages {
			name, _, _ := strings.Cut(p, " ")
			selects := func(a string) bool { return strings.HasPrefix(a, "-test.run=") }
			if slices.ContainsFunc(slices.Concat(j.tests.args, strings.Fields(p)), selects) {
				continue
			}
			program := filepath.Join(r.root, "build/tests", j.tests.programs.name, path.Base(name)+".test")
			list := exec.CommandContext(ctx, program, "-test.list="+faults)
			list.Dir = filepath.Join(r.root, name)
			list.Env = append(os.Environ(), j.tests.env...)
			if b, err := list.Output(); err == nil && strings.Contains(string(b), "Test") {
				out = append(out, draw{j, p})
			}
		}
	}
	return out
}

// round returns the job of a round.
func (d draw) round(seed uint64) *job {
	t := *d.job.tests
	t.packages = []string{d.pkg}
	t.args = join(t.args, []string{"-test.run=" + faults, fmt.Sprintf("-test.shuffle=%d", seed&(1<<63-1)), "-test.count=1"})
	t.env = join(t.env, []string{fmt.Sprintf("GOVERBS_SEED=%d", seed), fmt.Sprintf("SIMHCA_SEED=%d", seed)})
	return &job{slots: d.job.slots, tests: &t}
}

// failedTests names the tests of a job that failed, or "all" if it failed as a whole.
func (r *runner) failedTests(j *job) (out []string) {
	if res := r.results[j.name]; res != nil {
		for _, p := range res.list {
			for t := range p.failed {
				out = append(out, p.pkg+"."+t)
			}
		}
	}
	if len(out) == 0 {
		return []string{"all"}
	}
	slices.Sort(out)
	return out
}
