package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// outcome is what came of a test. Without a detail it has passed.
type outcome struct{ test, detail string }

// difference is a line of known.txt.
type difference struct {
	program string
	test    *regexp.Regexp
	reason  string
	notRun  bool
}

// differences is known.txt.
type differences []difference

// parseKnown reads lines of three columns with bars between them: a program, a pattern of names of
// tests, and why they fail. A program with an exclamation mark in front: such tests are not run.
// Empty lines and comments (#) do not count.
func parseKnown(text string) (d differences, err error) {
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " | ", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d has %d columns, not 3", i+1, len(f))
		}
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		var k difference
		k.program, k.notRun = strings.CutPrefix(f[0], "!")
		k.reason = f[2]
		if k.test, err = regexp.Compile("^(?:" + f[1] + ")$"); err != nil {
			return nil, errors.Join(fmt.Errorf("line %d", i+1), err)
		}
		d = append(d, k)
	}
	return d, nil
}

// skips reports whether a test is not run.
func (d differences) skips(program, test string) bool {
	return slices.ContainsFunc(d, func(k difference) bool { return k.notRun && k.program == program && k.test.MatchString(test) })
}

// verdict is what is to be said of a program.
type verdict struct {
	passed, known int
	wrong         []string
}

// judge compares a program's outcomes with the list.
func (d differences) judge(program string, all []outcome) (v verdict) {
	used := make([]bool, len(d))
	for _, o := range all {
		if o.detail == "" {
			v.passed++
			continue
		}
		is := false
		for i, k := range d {
			if k.program == program && !k.notRun && k.test.MatchString(o.test) {
				used[i], is = true, true
			}
		}
		if is {
			v.known++
		} else {
			v.wrong = append(v.wrong, o.test+": "+o.detail)
		}
	}
	if v.passed == 0 {
		v.wrong = append(v.wrong, "no test has passed")
	}
	for i, k := range d {
		if k.program == program && !k.notRun && !used[i] {
			v.wrong = append(v.wrong, fmt.Sprintf("%s is in known.txt, and nothing of that fails", k.test))
		}
	}
	return v
}
