package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// report writes build/test-times.json and build/flaky.txt, prints a summary, and returns an
// error if the run failed.
func (r *runner) report(took time.Duration) error {
	slices.SortFunc(r.times, func(a, b stageTime) int { return int(b.Seconds*10) - int(a.Seconds*10) })
	slices.SortFunc(r.packages, func(a, b packageTime) int { return int(b.Seconds*10) - int(a.Seconds*10) })
	b, err := json.MarshalIndent(map[string]any{"seconds": round(took), "jobs": r.times, "packages": r.packages}, "", "\t")
	if err == nil {
		err = os.WriteFile("build/test-times.json", append(b, '\n'), 0o644)
	}
	flaky := ""
	for _, f := range r.flaky {
		flaky += f + "\n"
	}
	err = errors.Join(err, os.WriteFile("build/flaky.txt", []byte(flaky), 0o644))
	fmt.Printf("## all packages\n%s\n", strings.Join(r.closing, "\n"))
	fmt.Println("## the slowest jobs")
	for _, t := range r.times[:min(len(r.times), 12)] {
		fmt.Printf("%8.1f s, %6.1f s of CPU  %s\n", t.Seconds, t.CPU, t.Job)
	}
	cpu := 0.0
	for _, t := range r.times {
		cpu += t.CPU
	}
	fmt.Printf("## %d packages ended, %d jobs, %.0f s, %.0f s of CPU\n", len(r.packages), len(r.times), took.Seconds(), cpu)
	if len(r.flaky) > 0 {
		fmt.Printf("passed at the second try:\n%s", flaky)
	}
	var names []string
	for name := range r.failures {
		names = append(names, name)
	}
	if len(names) > 0 {
		slices.Sort(names)
		err = errors.Join(fmt.Errorf("failed: %s", strings.Join(names, ", ")), err)
	}
	if err == nil {
		fmt.Println("PASS")
	}
	return err
}
