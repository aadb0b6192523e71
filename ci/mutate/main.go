// Mutate breaks the module's state machines on purpose, one change at a time, and
// prints the changes that no test sees:
//
//	go run ./ci/mutate [-only pattern] [folder ...]
//
// The changes are in files called mutations.txt beside the code that they break; see
// [parse] for what one looks like. The code itself is not touched: the go command
// builds each change as an overlay. A change is caught if the tests of its package
// compile and fail, or do not end within a minute. Tests that fail without any change,
// changes that do not compile and those that fit nowhere are errors.
//
// Folders are searched for lists; none means all of the module. The exit status is 1
// if a change was not caught.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "a `pattern` for the names of changes")
	limit := flag.Duration("timeout", time.Minute, "for the tests of one change")
	parallel := flag.Int("p", 2, "changes to try at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args(), *only, *limit, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folders []string, only string, limit time.Duration, parallel int) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		folders = []string{"."}
	}
	all, err := collect(folders, pattern)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no mutations")
	}
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	t := &trial{tmp: tmp, limit: limit}
	if err := t.unchanged(ctx, all); err != nil {
		return err
	}
	results := make([]result, len(all))
	turns := make(chan struct{}, max(parallel, 1))
	var printing sync.Mutex
	var work sync.WaitGroup
	for i := range all {
		work.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				results[i].err = ctx.Err()
				return
			}
			results[i] = t.try(ctx, i, &all[i])
			printing.Lock()
			defer printing.Unlock()
			fmt.Println(results[i].line(&all[i]))
		})
	}
	work.Wait()
	return summary(results)
}

// collect reads the lists in folders.
func collect(folders []string, only *regexp.Regexp) ([]mutation, error) {
	var all []mutation
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.Name() != "mutations.txt" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			ms, err := parse(string(text))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			for _, m := range ms {
				if m.dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
					return err
				}
				if only.MatchString(m.name) {
					all = append(all, m)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func summary(results []result) error {
	caught, survived, broken := 0, 0, 0
	for _, r := range results {
		switch {
		case r.err != nil:
			broken++
		case r.caught:
			caught++
		default:
			survived++
		}
	}
	fmt.Printf("%d of %d changes caught\n", caught, len(results))
	if survived+broken > 0 {
		return fmt.Errorf("%d survived, %d could not be tried", survived, broken)
	}
	return nil
}
