package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// module is the path of this module.
const module = "github.com/goverbs/goverbs"

// tests are what a job runs: tests of packages by the go command, or test programs that
// were built before, on this host or in a virtual machine.
type tests struct {
	packages []string // such as "./srd", or with flags of its own "./srd -test.run=TestPaths"
	env      []string
	goTest   []string // flags of go test
	programs flavor   // the programs; none: by go test
	args     []string // flags of the programs
	lab      []string // flags of the launcher; nil: on this host
	release  string   // with the libraries that the programs run with; empty: the host's
}

func (t *tests) String() string {
	var s []string
	if t.programs.name == "" {
		s = append(s, "go test")
	}
	if t.lab != nil {
		s = append(s, "rxelab")
	}
	return strings.Join(join(t.env, s, t.goTest, t.lab, t.packages, t.args), " ")
}

// flavor is a way of building test programs.
type flavor struct {
	name string // of the folder that has them
	args []string
	env  []string
}

var benches = flavor{name: "bench"}

// plain builds programs for a Debian release. Those that are built on a newer system than
// the guest's need the guest's C library.
func (r *runner) plain(debian string) flavor {
	if r.debian == oldest || r.debian == debian || r.o.device != "" {
		return flavor{name: "plain"}
	}
	return flavor{name: "plain-" + debian, env: r.releaseEnv(debian)}
}

// upper builds the programs of caches and examples, one of which has the name of one of plain.
func (r *runner) upper() flavor {
	f := r.plain(newest)
	f.name = "upper" + strings.TrimPrefix(f.name, "plain")
	return f
}

// raced instruments programs: race detector, checks of pointer conversions (checkptr comes
// with it), and of Go pointers that are stored in C memory.
func (r *runner) raced(debian string) flavor {
	f := r.plain(debian)
	f.name, f.args, f.env = "race"+strings.TrimPrefix(f.name, "plain"), words("-race"), append(words("GOEXPERIMENT=cgocheck2"), f.env...)
	return f
}

// simulated builds programs with simulated devices in them.
func (r *runner) simulated() flavor {
	if r.o.sanitize {
		return flavor{name: "sanitized", args: words("-asan -tags simhca"), env: []string{
			"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined", "CGO_LDFLAGS=-fsanitize=undefined"}}
	}
	return flavor{name: "simulated", args: words("-race -tags simhca"), env: words("GOEXPERIMENT=cgocheck2")}
}

// compile returns the command that builds the programs of packages, without what debuggers need.
func (r *runner) compile(f flavor, packages []string) []string {
	return join([]string{r.goCmd, "test", "-vet=off", "-c", "-ldflags=-w", "-o", "build/tests/" + f.name + "/"}, f.args, packages)
}

// testFlags returns the flags of the tests themselves, with a prefix for those of a program.
func (r *runner) testFlags(prefix string) []string {
	flags := []string{"-" + prefix + "timeout=" + r.o.limit().String()}
	if !r.o.long {
		flags = append(flags, "-"+prefix+"short")
	}
	return flags
}

// runTests runs the tests of a job, prints how each package ended, and keeps the results.
func (r *runner) runTests(ctx context.Context, j *job, log io.Writer) error {
	res, err := r.try(ctx, j, j.tests, log)
	r.mu.Lock()
	r.results[j.name] = res
	r.mu.Unlock()
	return err
}

// errTests: tests failed; the results say which.
var errTests = errors.New("tests failed")

// try runs tests once.
func (r *runner) try(ctx context.Context, j *job, t *tests, log io.Writer) (*results, error) {
	res := &results{other: func(line string) { io.WriteString(log, line) }, ended: func(p *result) { r.packageEnded(j, p) }}
	argv, err := r.commandOf(ctx, t)
	if err != nil {
		return res, err
	}
	cmd := r.start(ctx, j.slots == 0, t.env, argv)
	out, w, err := os.Pipe()
	if err != nil {
		return res, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = w, log
	err = cmd.Start()
	w.Close()
	if err != nil {
		return res, err
	}
	read := make(chan error, 1)
	go func() { read <- res.read(io.TeeReader(out, log)) }()
	err = j.finish(cmd)
	if rerr := <-read; err == nil {
		err = rerr
	}
	var exit *exec.ExitError
	failed := false
	for _, p := range res.list {
		failed = failed || !p.passed()
	}
	switch {
	case ctx.Err() != nil:
		return res, ctx.Err()
	case t.programs.name == "" && errors.As(err, &exit) && failed, err == nil && failed:
		return res, errTests
	case err != nil:
		return res, err // the launcher, or the compiler
	}
	if missing := t.missing(res); len(missing) > 0 {
		return res, fmt.Errorf("nothing was heard of %s", strings.Join(missing, " "))
	}
	return res, nil
}

// missing returns the packages that should have run as programs and did not.
func (t *tests) missing(res *results) (out []string) {
	if t.programs.name == "" {
		return nil
	}
	for _, p := range t.packages {
		p, _, _ = strings.Cut(p, " ")
		if r := res.of(importPath(p)); r.action == "" {
			out = append(out, p)
		}
	}
	return out
}

func importPath(pkg string) string { return path.Join(module, pkg) }

// commandOf returns the command that runs tests and prints events of go test -json.
func (r *runner) commandOf(ctx context.Context, t *tests) ([]string, error) {
	if t.programs.name == "" {
		// lint has vetted everything; each way of building would be vetted again.
		return join([]string{r.goCmd, "test", "-json", "-vet=off"}, t.goTest, r.testFlags(""), t.packages), nil
	}
	with, err := r.libraries(ctx, t.release)
	if err != nil {
		return nil, err
	}
	var script strings.Builder
	for _, p := range t.packages {
		p, own, _ := strings.Cut(p, " ")
		program := filepath.Join(r.root, "build/tests", t.programs.name, path.Base(p)+".test")
		argv := join([]string{filepath.Join(r.root, "build/test2json"), "-t", "-p", importPath(p)}, with,
			[]string{program, "-test.v=test2json", "-test.paniconexit0"}, r.testFlags("test."), strings.Fields(own), t.args)
		if argv, err = r.withoutHostTests(argv, p); err != nil {
			return nil, err
		}
		fmt.Fprintf(&script, "cd %s && %s\n", quote(filepath.Join(r.root, p)), quoteAll(argv))
	}
	script.WriteString("exit 0\n")
	argv := []string{"sh", "-c", script.String()}
	if t.lab != nil {
		argv = join([]string{filepath.Join(r.root, "build/rxelab"), "-timeout", (r.o.limit() * 4).String()}, t.lab, []string{"--"}, argv)
	}
	return argv, nil
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoteAll(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = quote(a)
	}
	return strings.Join(out, " ")
}

// libraries returns the words before a program's name that have it run with the libraries
// of a Debian release.
func (r *runner) libraries(ctx context.Context, release string) ([]string, error) {
	if release == "" {
		return nil, nil
	}
	out, err := r.headers(ctx, "-with", release)
	return strings.Fields(out), err
}

// headers asks ci/headers for something of a Debian release.
func (r *runner) headers(ctx context.Context, what, release string) (string, error) {
	cmd := exec.CommandContext(ctx, r.goCmd, "run", "./ci/headers", what, release)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
