// Compat runs other people's clients and test suites of memcached against rdmacached's gateway, on
// simulated devices, and compares what fails with a list:
//
//	make compat
//	go run ./ci/compat -only php     # after that, one program
//
// It prints a line for each program. known.txt has the differences and their reasons. A difference
// that is not in the list is an error, and so is an entry of the list that nothing has any more. The
// programs are Debian's packages, which make installs; the suites are downloaded: memcached's
// source package, a Go module and an npm package.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

//go:embed known.txt
var knownList string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "run the programs that match the `pattern`")
	flag.Parse()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

// setup is what all programs use.
type setup struct {
	dir     string // scratch
	logs    string
	server  string // the program rdmacached
	posing  string // the program that poses as memcached
	preload string // the simulated devices
	scripts string
	skips   differences
}

// logs is the folder for what the programs print.
const logs = "build/compat"

func run(ctx context.Context, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	known, err := parseKnown(knownList)
	if err != nil {
		return fmt.Errorf("known.txt: %w", err)
	}
	s, done, err := prepare(ctx)
	if err != nil {
		return err
	}
	defer done()
	failed := false
	fmt.Printf("%-16s %6s %6s %7s  %s\n", "program", "passed", "known", "unknown", "time")
	for _, p := range programs {
		if !pattern.MatchString(p.name) {
			continue
		}
		begun := time.Now()
		all, err := s.outcomes(ctx, p, known)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			all = append(all, outcome{test: "(all)", detail: err.Error()})
		}
		v := known.judge(p.name, all)
		fmt.Printf("%-16s %6d %6d %7d  %.0f s\n", p.name, v.passed, v.known, len(v.wrong), time.Since(begun).Seconds())
		for _, w := range v.wrong {
			failed = true
			fmt.Println("    " + w)
		}
	}
	if failed {
		return errors.New("there are differences that ci/compat/known.txt does not have; outputs are in " + logs)
	}
	return nil
}

// prepare builds what is needed. It runs in the module's root.
func prepare(ctx context.Context) (*setup, func(), error) {
	dir, err := os.MkdirTemp("", "compat")
	if err != nil {
		return nil, nil, err
	}
	done := func() { _ = os.RemoveAll(dir) }
	s := &setup{dir: dir, server: filepath.Join(dir, "rdmacached"), posing: filepath.Join(dir, "memcached-debug")}
	for _, p := range []struct {
		of   *string
		path string
	}{{&s.logs, logs}, {&s.preload, "build/simhca.so"}, {&s.scripts, "ci/compat/scripts"}} {
		if *p.of, err = filepath.Abs(p.path); err != nil {
			break
		}
	}
	if err == nil {
		err = errors.Join(os.RemoveAll(s.logs), os.MkdirAll(s.logs, 0o755))
	}
	if err == nil {
		_, err = os.Stat(s.preload)
	}
	for program, pkg := range map[string]string{s.server: "./cmd/rdmacached", s.posing: "./ci/compat/posing"} {
		if err == nil {
			_, err = s.output(exec.CommandContext(ctx, "go", "build", "-o", program, pkg), "build")
		}
	}
	if err != nil {
		done()
	}
	return s, done, err
}

// output runs a command, keeps what it prints in the logs, and returns its standard output.
func (s *setup) output(c *exec.Cmd, log string) ([]byte, error) {
	path := filepath.Join(s.logs, log+".log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out tee
	out.to = f
	c.Stdout, c.Stderr, c.WaitDelay = &out, f, 5*time.Second
	if err := c.Run(); err != nil {
		return out.b, fmt.Errorf("%s: %w (%s)", filepath.Base(c.Path), err, path)
	}
	return out.b, nil
}

// tee is what a command prints; it goes to a file too.
type tee struct {
	b  []byte
	to *os.File
}

func (o *tee) Write(b []byte) (int, error) {
	o.b = append(o.b, b...)
	return o.to.Write(b)
}
