package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// isMachine reports whether a package is a state machine, or runs in virtual time: its tests
// depend on nothing but the code.
func isMachine(pkg string) bool {
	rel := strings.TrimPrefix(pkg, module+"/")
	for _, system := range words("cache dc lockoffload pacer srd verbs") {
		if strings.HasPrefix(rel, system+"/internal/") {
			return true
		}
	}
	return rel == "internal/virtual"
}

// repeatable reports whether what failed may have been chance.
func repeatable(p *result) bool {
	if isMachine(p.pkg) {
		return false
	}
	for t := range p.failed {
		if p.seeded(t) {
			return false
		}
	}
	return true
}

// repeatFailed runs the tests that failed once more, one job at a time. A job is mended if
// all of them pass.
func (r *runner) repeatFailed(ctx context.Context) {
	for _, j := range r.failed {
		if j.tests != nil && ctx.Err() == nil && r.repeat(ctx, j) {
			delete(r.failures, j.name)
		}
	}
}

// repeat runs what failed of a job once more, and reports whether it passed.
func (r *runner) repeat(ctx context.Context, j *job) bool {
	res := r.results[j.name]
	if res == nil || res.build.Len() > 0 {
		if res != nil {
			fmt.Print(res.build.String())
		}
		r.showLog(j.name)
		return false
	}
	bad := slices.DeleteFunc(slices.Clone(res.list), (*result).passed)
	if len(bad) == 0 { // the launcher's own failure, such as a complaint of the kernel
		r.showLog(j.name)
		return false
	}
	for _, p := range bad {
		if !repeatable(p) {
			fmt.Printf("## %s is not repeated: its tests do not depend on chance\n", p.pkg)
			return false
		}
	}
	for i, p := range bad {
		t, names := again(j, p)
		fmt.Printf("## once more, alone: %s %s\n", p.pkg, names)
		log, err := r.openLog(fmt.Sprintf("%s-again-%d", j.name, i))
		if err == nil {
			_, err = r.try(ctx, j, t, log)
			log.Close()
		}
		if err != nil {
			fmt.Printf("## %s failed again: %v\n", p.pkg, err)
			return false
		}
		r.flaky = append(r.flaky, fmt.Sprintf("%s %s (%s)", p.pkg, names, j.name))
	}
	return true
}

// again returns the tests of a package that failed in a job, and their names: all of the
// package's tests if it did not come to its end.
func again(j *job, p *result) (*tests, string) {
	t := *j.tests
	t.packages = words("." + strings.TrimPrefix(p.pkg, module))
	if i := slices.IndexFunc(j.tests.packages, func(own string) bool { return strings.HasPrefix(own, t.packages[0]+" ") }); i >= 0 {
		t.packages[0] = j.tests.packages[i]
	}
	if p.whole() {
		return &t, "(all)"
	}
	names := slices.Sorted(maps.Keys(p.failed))
	pattern := "^(" + strings.Join(names, "|") + ")$"
	if t.programs.name == "" {
		t.goTest = join(t.goTest, []string{"-count=1", "-run=" + pattern})
	} else {
		t.args = join(t.args, []string{"-test.run=" + pattern})
	}
	return &t, strings.Join(names, " ")
}
