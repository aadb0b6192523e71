package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// switchText is the file that joins a package: mutantOn reports whether a change is made. It
// writes the numbers of the changes that are reached to a file that the environment names.
const switchText = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantChosen, mutantReached = mutantBegin()

func mutantBegin() (int, *os.File) {
	n, _ := strconv.Atoi(os.Getenv("MUTANT"))
	if path := os.Getenv("MUTANTS_REACHED"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		return n, f
	}
	return n, nil
}

var mutantSeen [%d]atomic.Bool

func mutantOn(id int) bool {
	if mutantReached != nil && !mutantSeen[id].Swap(true) {
		mutantReached.WriteString(strconv.Itoa(id) + "\n")
	}
	return id == mutantChosen
}
`

// trial is the test program of a package with all changes in it.
type trial struct {
	dir, tmp, binary string
	tests            []test        // the shortest first
	grace            time.Duration // before tests are taken to hang, beyond five times their time
}

type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// newTrial builds the program and finds out which test reaches what.
func newTrial(ctx context.Context, p *pkg, tags string) (t *trial, err error) {
	t = &trial{dir: p.Dir, grace: 10 * time.Second}
	if t.tmp, err = os.MkdirTemp("", "mutate"); err != nil {
		return nil, err
	}
	defer func(made *trial) {
		if err != nil {
			made.close()
		}
	}(t)
	if err := t.build(ctx, p, tags); err != nil {
		return nil, err
	}
	out, err := t.run(ctx, time.Minute, nil, "-test.list=^(Test|Fuzz|Example)")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	for _, name := range strings.Fields(string(out)) {
		if err := t.measure(ctx, name); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(t.tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	return t, nil
}

func (t *trial) close() { os.RemoveAll(t.tmp) }

func (t *trial) build(ctx context.Context, p *pkg, tags string) error {
	replace := make(map[string]string)
	write := func(path string, text []byte) error {
		file := filepath.Join(t.tmp, strconv.Itoa(len(replace))+".go")
		replace[path] = file
		return os.WriteFile(file, text, 0o600)
	}
	for path, text := range p.changed {
		if err := write(path, text); err != nil {
			return err
		}
	}
	name := regexp.MustCompile(`(?m)^package (\w+)`).FindSubmatch(p.changed[filepath.Join(p.Dir, p.GoFiles[0])])[1]
	if err := write(filepath.Join(p.Dir, "mutant_switch.go"), fmt.Appendf(nil, switchText, name, len(p.mutants)+1)); err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(t.tmp, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return err
	}
	t.binary = filepath.Join(t.tmp, "test")
	c := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", tags, "-overlay", overlay, "-o", t.binary, ".")
	c.Dir = p.Dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// measure runs one test without a change.
func (t *trial) measure(ctx context.Context, name string) error {
	reached := filepath.Join(t.tmp, "reached")
	defer os.Remove(reached)
	begin := time.Now()
	out, err := t.run(ctx, 10*time.Minute, []string{"MUTANTS_REACHED=" + reached}, "-test.run=^"+name+"$")
	if err != nil {
		return fmt.Errorf("%s fails without any change: %w\n%s", name, err, out)
	}
	one := test{name: name, took: time.Since(begin), reaches: make(map[int]bool)}
	text, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, line := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		one.reaches[id] = true
	}
	t.tests = append(t.tests, one)
	return nil
}

// try returns the tests among which one kills a mutant, or "". Tests run together while they are
// short.
func (t *trial) try(ctx context.Context, id int) (by string, err error) {
	var names []string
	var sum time.Duration
	for i, one := range t.tests {
		if one.reaches[id] {
			names = append(names, one.name)
			sum += one.took
		}
		if len(names) == 0 || sum < time.Second && i < len(t.tests)-1 {
			continue
		}
		by = strings.Join(names, "|")
		_, err := t.run(ctx, t.grace+5*sum, []string{"MUTANT=" + strconv.Itoa(id)}, "-test.failfast", "-test.run=^("+by+")$")
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case errors.As(err, &exit), errors.Is(err, context.DeadlineExceeded):
			return by, nil
		case err != nil:
			return "", err
		}
		names, sum = nil, 0
	}
	return "", nil
}

func (t *trial) run(ctx context.Context, limit time.Duration, env []string, args ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	c := exec.CommandContext(ctx, t.binary, append(args, "-test.short")...)
	c.Dir = t.dir
	c.Env = append(os.Environ(), env...)
	c.WaitDelay = time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}
