package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"
)

// soak runs the device tests among the jobs, those of test programs, again and again beside
// busy loops, and prints how often each test failed.
func (r *runner) soak(ctx context.Context, jobs []*job) error {
	var prepare, again []*job
	for _, j := range jobs {
		if j.tests != nil && j.tests.programs.name != "" {
			again = append(again, j)
		}
	}
	for _, j := range jobs {
		if j.first {
			prepare = append(prepare, j)
		}
	}
	r.runAll(ctx, prepare)
	for range r.o.busy {
		loop := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			return err
		}
		defer func() { loop.Process.Kill(); loop.Wait() }()
	}
	failures := make(map[string]int)
	start := time.Now()
	done := 0
	for ; done < r.o.soak && ctx.Err() == nil; done++ {
		r.failures, r.failed = map[string]error{}, nil
		r.runAll(ctx, again)
		for _, j := range r.failed {
			found := false
			for _, p := range r.results[j.name].list {
				for t := range p.failed {
					failures[p.pkg+" "+t+" ("+j.name+")"]++
					found = true
				}
			}
			if !found {
				failures[j.name]++
			}
		}
		fmt.Printf("## round %d of %d, %.0f s\n", done+1, r.o.soak, time.Since(start).Seconds())
	}
	fmt.Printf("## failures in %d rounds beside %d busy loops\n", done, r.o.busy)
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Printf("%3d  %s\n", failures[name], name)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d tests or jobs failed at least once", len(failures))
	}
	return ctx.Err()
}
