package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// job is a part of the run.
type job struct {
	name  string
	needs []string // names of the jobs that it needs
	slots int      // how many of the places for waiting tests it takes; 0: it keeps the host busy
	// tests is what the job runs, unless it is a command.
	tests   *tests
	command []string
	env     []string
	first   bool          // it has the host's whole speed, since others need it
	cpu     time.Duration // what its processes took, once it has ended
}

func (j *job) String() string {
	s := j.name + ": "
	switch {
	case j.tests != nil:
		s += j.tests.String()
	default:
		s += strings.Join(append(slices.Clone(j.env), j.command...), " ")
	}
	return s
}

// selected returns the jobs with names that match, and those that these need, in the order
// of all.
func selected(all []*job, match *regexp.Regexp) []*job {
	wanted := make(map[string]bool)
	for _, j := range slices.Backward(all) { // a job stands behind those that it needs
		if wanted[j.name] || match.MatchString(j.name) && !j.first {
			wanted[j.name] = true
			for _, n := range j.needs {
				wanted[n] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(j *job) bool { return !wanted[j.name] })
}

// runnable returns the first waiting job that can start now: what it needs has ended, jobs
// that keep the host busy run one at a time, and the others as far as there is room.
func runnable(waiting []*job, ended map[string]bool, busy bool, room, limit int) int {
	return slices.IndexFunc(waiting, func(j *job) bool {
		for _, n := range j.needs {
			if !ended[n] {
				return false
			}
		}
		if j.slots == 0 {
			return !busy
		}
		return min(j.slots, limit) <= room
	})
}

// runAll runs jobs. A job fails at once if one that it needs has failed; what it needs and is not
// among them has been run before.
func (r *runner) runAll(ctx context.Context, jobs []*job) {
	waiting := slices.Clone(jobs)
	ended := make(map[string]bool)
	for _, j := range jobs {
		for _, n := range j.needs {
			ended[n] = !slices.ContainsFunc(jobs, func(other *job) bool { return other.name == n })
		}
	}
	done := make(chan *job)
	room, busy, running := r.o.slots, false, 0
	for len(waiting) > 0 || running > 0 {
		for {
			i := runnable(waiting, ended, busy, room, r.o.slots)
			if i < 0 {
				break
			}
			j := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			running++
			if j.slots == 0 {
				busy = true
			} else {
				room -= min(j.slots, r.o.slots)
			}
			go func() {
				r.runJob(ctx, j)
				done <- j
			}()
		}
		j := <-done
		running--
		ended[j.name] = true
		if j.slots == 0 {
			busy = false
		} else {
			room += min(j.slots, r.o.slots)
		}
	}
}

// runJob runs one job, notes its time, and prints how it ended.
func (r *runner) runJob(ctx context.Context, j *job) {
	start := time.Now()
	log, err := r.openLog(j.name)
	for _, n := range j.needs {
		if err == nil && r.failedJob(n) {
			err = fmt.Errorf("%s failed, which it needs", n)
		}
	}
	switch {
	case err != nil:
	case j.tests != nil:
		err = r.runTests(ctx, j, log)
	default:
		err = r.runCommand(ctx, j, log)
	}
	log.Close() // of a nil file too
	r.ended(j, time.Since(start), err)
}
