// Mutate changes the module's state machines, one statement or condition at a time, runs
// their tests against each change, and prints the changes that no test sees:
//
//	go run ./ci/mutate [-n 50] [-seed 1] [-only pattern] [-list] [-tags list] [package ...]
//
// A change (see [mutants]) removes or swaps statements, fixes a condition, or moves the bound of
// a comparison. All changes of a package are built into one test program, beside a switch that an
// environment variable sets; the source is untouched. A change is tried with the tests that reach
// it, the shortest first, and is killed if one of them fails or does not end.
//
// Without packages, [machines] are changed. Of each package -n changes are drawn, 0 meaning all.
// The exit status is 1 if less than nine tenths of a package's changes are killed. Changes without
// a difference that a test could see are listed in equivalent.txt with the reason, and are left
// out. Drivers can be changed too, where their tests run: beside simulated devices, that is
//
//	SIMHCA=mlx5,mlx5 go run ./ci/mutate -tags simhca ./dc
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// machines are the packages of state machines and of pure data structures.
var machines = []string{
	"./cache/internal/...", "./dc/internal/...", "./internal/accept", "./internal/pending", "./internal/prom", "./internal/rtt", "./internal/virtual",
	"./lockoffload/internal/...", "./pacer/internal/...", "./srd/internal/...", "./verbs/internal/...",
	"./verbs/stream/internal/...",
}

// drivers are packages below these folders that do I/O: what their own tests see of them on a
// host without devices is little.
var drivers = []string{"cache/internal/driver/", "verbs/internal/rig", "verbs/internal/pollfd", "verbs/internal/hangup"}

// least is the share of a package's changes that tests have to kill.
const least = 0.9

//go:embed equivalent.txt
var equivalentText string

type options struct {
	n        int
	seed     uint64
	only     *regexp.Regexp
	list     bool
	tags     string
	parallel int
}

func main() {
	var o options
	only := flag.String("only", "", "a `pattern` for the names of changes")
	flag.IntVar(&o.n, "n", 50, "changes to try in each package; 0 means all")
	flag.Uint64Var(&o.seed, "seed", 1, "of the drawing")
	flag.BoolVar(&o.list, "list", false, "print the changes instead of trying them")
	flag.StringVar(&o.tags, "tags", "", "build tags, separated by commas")
	flag.IntVar(&o.parallel, "p", 2, "changes to try at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		err = run(ctx, flag.Args(), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, patterns []string, o options) error {
	all := len(patterns) == 0
	if all {
		patterns = machines
	}
	packages, err := find(ctx, patterns, o.tags)
	if err != nil {
		return err
	}
	if all {
		packages = slices.DeleteFunc(packages, func(p pkg) bool {
			return slices.ContainsFunc(drivers, func(d string) bool { return strings.HasPrefix(p.short(), d) })
		})
	}
	equivalent, err := parseEquivalent(equivalentText)
	if err != nil {
		return err
	}
	var weak []string
	for _, p := range packages {
		left, known, err := draw(&p, equivalent, o)
		if err != nil {
			return err
		}
		if o.list {
			for _, m := range left {
				fmt.Println(m.name)
			}
			continue
		}
		if len(left) == 0 {
			continue
		}
		killed, err := tryAll(ctx, &p, left, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		share := float64(killed) / float64(len(left))
		fmt.Printf("## %-40s %4d of %4d killed, %3.0f %%; %d changes, %d of them equivalent\n",
			p.short(), killed, len(left), 100*share, len(p.mutants), known)
		if share < least {
			weak = append(weak, p.short())
		}
	}
	if len(weak) > 0 {
		return fmt.Errorf("fewer than %.0f %% are killed in %v", 100*least, weak)
	}
	return nil
}

// draw returns the changes of p to try, in the order of the source, and the number of those that
// are known to be equivalent.
func draw(p *pkg, equivalent map[string]string, o options) (left []*mutant, known int, err error) {
	if err := p.parse(); err != nil {
		return nil, 0, err
	}
	for _, m := range p.mutants {
		if _, ok := equivalent[m.name]; ok {
			known++
		} else if o.only.MatchString(m.name) {
			left = append(left, m)
		}
	}
	if o.n > 0 && len(left) > o.n {
		random := rand.New(rand.NewPCG(o.seed, 0))
		random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		left = left[:o.n]
		slices.SortFunc(left, func(a, b *mutant) int { return a.id - b.id })
	}
	return left, known, nil
}

// tryAll tries the mutants, prints those that live, and returns the number of the killed.
func tryAll(ctx context.Context, p *pkg, mutants []*mutant, o options) (killed int, err error) {
	t, err := newTrial(ctx, p, o.tags)
	if err != nil {
		return 0, err
	}
	defer t.close()
	var mu sync.Mutex // of killed, err and the output
	var work sync.WaitGroup
	places := make(chan struct{}, max(o.parallel, 1))
	for _, m := range mutants {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			by, tryErr := t.try(ctx, m.id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case tryErr != nil:
				err = errors.Join(err, tryErr)
			case by != "":
				killed++
			default:
				fmt.Printf("LIVES  %s\n", m.name)
			}
		})
	}
	work.Wait()
	return killed, err
}
