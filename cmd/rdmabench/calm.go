package main

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/procs"
)

// calmRuntime keeps the Go runtime's threads from competing with the test for
// the CPU. It returns only once that is so: on a machine with one CPU it may
// have to start the program again.
//
// With several CPUs idle Ps keep the runtime's monitor thread from taking the
// last one away from calls into C.
//
// With one CPU idle Ps do harm to a test that polls, because each scheduling point wakes a thread to
// run on one of them. The goroutine that polls moves to it, and each thread
// that it moves to has slept, for which the scheduler gives it the CPU ahead of
// the peer and of the device's threads. There the runtime gets one P, and its
// monitor thread, which wants to look every 20 us after each long call, sleeps
// until the next timer interrupt: timers of the program may be late by
// calmSlack.
func calmRuntime(events bool) error {
	if runtime.NumCPU() > 1 {
		procs.SpareProcs()
		return nil
	}
	if events {
		procs.SpareProcs() // the goroutine that waits does not run for long
	}
	return restartCalm(events)
}
