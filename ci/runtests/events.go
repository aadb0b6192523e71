package main

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of events of a build
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// result is how the tests of one package ended.
type result struct {
	pkg     string
	action  string          // pass, fail or skip; empty if the end was never told
	seconds float64         // as the package tells
	failed  map[string]bool // top-level tests that failed; false: they never ended
	output  map[string]*strings.Builder
	counted bool // at least one test ran
}

// passed reports whether the package ended well.
func (p *result) passed() bool { return p.action == "pass" || p.action == "skip" }

// whole reports whether the failure is not that of tests alone: the program crashed, was
// stopped, could not be built or did not tell how it ended. Tests that stood behind the end
// have not run then.
func (p *result) whole() bool {
	if p.passed() {
		return false
	}
	if p.action == "" || len(p.failed) == 0 || strings.Contains(p.text(""), "panic: ") {
		return true
	}
	for test, told := range p.failed {
		if !told || strings.Contains(p.text(test), "panic: ") {
			return true
		}
	}
	return false
}

// text returns the output of a test with its subtests, or for "" what is no test's.
func (p *result) text(test string) string {
	if b := p.output[test]; b != nil {
		return b.String()
	}
	return ""
}

// seeded reports whether a test prints a seed: what it found is repeatable, and must not be
// taken for chance.
func (p *result) seeded(test string) bool { return strings.Contains(p.text(test), "GOVERBS_SEED=") }

// results collects events by package, in the order in which packages begin.
type results struct {
	list  []*result
	build strings.Builder // what the compiler says
	other func(line string)
	ended func(*result) // called when the end of a package is told
}

func (r *results) of(pkg string) *result {
	if i := slices.IndexFunc(r.list, func(p *result) bool { return p.pkg == pkg }); i >= 0 {
		return r.list[i]
	}
	p := &result{pkg: pkg, failed: map[string]bool{}, output: map[string]*strings.Builder{}}
	r.list = append(r.list, p)
	return p
}

// read takes lines of go test -json until the end of in. Lines that are none go to other.
func (r *results) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &e) == nil && e.Action != "":
			r.take(e)
		default:
			r.other(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *results) take(e event) {
	if e.Package == "" {
		r.build.WriteString(e.Output)
		return
	}
	p := r.of(e.Package)
	top, _, sub := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output":
		if p.output[top] == nil {
			p.output[top] = &strings.Builder{}
		}
		p.output[top].WriteString(e.Output)
	case "run":
		if !sub {
			p.counted = true
			p.failed[top] = false
		}
	case "pass", "skip", "fail":
		switch {
		case e.Test == "":
			p.action, p.seconds = e.Action, e.Elapsed
			r.ended(p)
		case sub:
		case e.Action == "fail":
			p.failed[top] = true
		default:
			delete(p.failed, top)
			delete(p.output, top)
		}
	}
}
