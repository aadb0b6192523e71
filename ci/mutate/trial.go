package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// trial runs tests on changed code.
type trial struct {
	tmp   string
	limit time.Duration
}

// result is what became of a change.
type result struct {
	caught bool
	by     string // the first test that failed
	took   time.Duration
	err    error // it could not be tried
}

func (r *result) line(m *mutation) string {
	where := filepath.Join(filepath.Base(filepath.Dir(m.dir)), filepath.Base(m.dir))
	switch {
	case r.err != nil:
		return fmt.Sprintf("ERROR     %s: %s: %v", where, m.name, r.err)
	case r.caught:
		return fmt.Sprintf("caught    %s: %s (%s, %.1f s)", where, m.name, r.by, r.took.Seconds())
	}
	return fmt.Sprintf("SURVIVED  %s: %s (%.1f s)", where, m.name, r.took.Seconds())
}

// unchanged requires that what is to catch changes passes without any.
func (t *trial) unchanged(ctx context.Context, all []mutation) error {
	type program struct{ dir, tags string }
	type selection struct {
		program
		env, test string
	}
	built, passed := map[program]string{}, map[selection]bool{}
	defer func() {
		for _, binary := range built {
			os.Remove(binary)
		}
	}()
	for i := range all {
		m := &all[i]
		p := program{m.tested(), m.tags}
		s := selection{p, m.env, m.test}
		if passed[s] {
			continue
		}
		passed[s] = true
		if built[p] == "" {
			binary, err := t.build(ctx, fmt.Sprintf("unchanged%d", i), m, "")
			if err != nil {
				return err
			}
			built[p] = binary
		}
		out, err := t.run(ctx, built[p], m)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s fails without any change: %w\n%s", m.env, m.tested(), err, out)
		case bytes.Contains(out, []byte("no tests to run")):
			return fmt.Errorf("%s: no test matches %q", m.tested(), m.test)
		}
	}
	return nil
}

func (t *trial) try(ctx context.Context, i int, m *mutation) (r result) {
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	changed, err := m.apply()
	if err != nil {
		return result{err: err}
	}
	name := fmt.Sprint("change", i)
	file, overlay := filepath.Join(t.tmp, name+".go"), filepath.Join(t.tmp, name+".json")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path(): file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, changed, 0o600), os.WriteFile(overlay, text, 0o600))
	}
	if err != nil {
		return result{err: err}
	}
	binary, err := t.build(ctx, name, m, overlay)
	if err != nil {
		return result{err: err}
	}
	defer os.Remove(binary)
	out, err := t.run(ctx, binary, m)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return result{}
	case ctx.Err() != nil:
		return result{err: ctx.Err()}
	case errors.As(err, &exit):
		return result{caught: true, by: failed(out)}
	}
	return result{err: err}
}

// build is the test program of the package that must catch the change.
func (t *trial) build(ctx context.Context, name string, m *mutation, overlay string) (string, error) {
	binary := filepath.Join(t.tmp, name+".test")
	args := []string{"test", "-c", "-vet=off", "-tags", m.tags, "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, ".")...)
	c.Dir = m.tested()
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("%s has no tests", m.tested())
	}
	return binary, nil
}

func (t *trial) run(ctx context.Context, binary string, m *mutation) ([]byte, error) {
	c := exec.CommandContext(ctx, binary, "-test.short", "-test.failfast", "-test.run="+m.test, "-test.timeout="+t.limit.String())
	c.Dir = m.tested()
	c.Env = append(os.Environ(), strings.Fields(m.env)...)
	c.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	stuckTest  = regexp.MustCompile(`(?m)^\t+(Test\w+) \(`) // in the list of running tests
)

// failed returns the name of the test that caught a change.
func failed(out []byte) string {
	if m := failedTest.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	text := string(out)
	if strings.Contains(text, "panic: test timed out") {
		if m := stuckTest.FindSubmatch(out); m != nil {
			return string(m[1]) + " does not end"
		}
		return "does not end"
	}
	return "panic"
}
