// Command runtests is what make test runs: the linters, the tests on this host, those on
// simulated devices, the builds against other releases of rdma-core, and the tests in
// virtual machines.
//
//	runtests                   # everything
//	runtests -only 'unit|lint' # the jobs with a name that matches
//	runtests -list             # the jobs, and which tests each runs
//	runtests -soak 10          # all device tests ten times beside busy loops
//	runtests -torture 30m      # fault tests in random order
//
// Tests in virtual machines mostly wait, so several machines run at a time; what the host
// does meanwhile has a lower priority. Each job's output is in build/logs. The time of each
// job and package goes to build/test-times.json.
//
// A test of a device, a network or a process that fails is run once more, alone. If it
// passes then, the run passes, and ends with a list of such tests, which is also in
// build/flaky.txt. Tests of state machines, and those that print a seed, are never run
// again.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var o options
	only := flag.String("only", "", "regular expression of the names of the jobs to run; the jobs that these need run too")
	list := flag.Bool("list", false, "print the jobs instead of running them")
	flag.IntVar(&o.soak, "soak", 0, "run the device tests so many times beside busy loops, and count the failures")
	flag.IntVar(&o.busy, "busy", 6, "busy loops beside -soak")
	flag.DurationVar(&o.torture, "torture", 0, "run fault tests in random order for so long")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the first round of -torture, which the round of an earlier run has printed")
	flag.BoolVar(&o.long, "long", false, "run the long versions of the tests")
	flag.StringVar(&o.device, "device", "", "RDMA device of this host to use instead of virtual machines")
	flag.IntVar(&o.slots, "slots", 2, "virtual machines, and tests on simulated devices, at a time")
	flag.BoolVar(&o.sanitize, "sanitize", false, "build what runs on simulated devices with the address sanitizer instead of the race detector")
	flag.BoolVar(&o.newer, "newer", false, "run all tests on simulated devices with the libraries of Debian 13")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "runtests: unexpected argument", flag.Arg(0))
		os.Exit(2)
	}
	match, err := regexp.Compile("^(" + *only + ")")
	if err == nil {
		err = run(ctx, o, match, *list)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, match *regexp.Regexp, list bool) error {
	r, err := newRunner(o)
	if err != nil {
		return err
	}
	all, err := r.plan()
	if err != nil {
		return err
	}
	jobs := selected(all, match)
	if list {
		for _, j := range jobs {
			fmt.Println(j)
		}
		return nil
	}
	r.versions(ctx)
	if o.soak > 0 {
		return r.soak(ctx, jobs)
	}
	if o.torture > 0 {
		return r.torture(ctx, jobs)
	}
	start := time.Now()
	r.runAll(ctx, jobs)
	r.repeatFailed(ctx)
	return r.report(time.Since(start))
}
