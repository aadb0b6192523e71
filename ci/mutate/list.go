package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutation is one change that the tests of a package must catch.
type mutation struct {
	dir  string // that the list is in
	name string
	file string // relative to dir
	test string // pattern for go test -run; empty: all
	pkg  string // with the tests that must catch it, relative to dir; empty: the list's own
	conditions
	old     string // occurs once in the file
	new     string
	lineNum int // in the list
}

// conditions are those under which a mutation is tried.
type conditions struct {
	tags string // for go test -tags
	env  string // VAR=value ..., for the tests
}

// set takes a line of a list, if it is one of them.
func (c *conditions) set(key, value string) bool {
	switch key {
	case "tags":
		c.tags = value
	case "env":
		c.env = value
	default:
		return false
	}
	return true
}

// parse reads a list of mutations. They are separated by lines of three hyphens, and
// each is a sequence of keys, of which old and new go on until the next key:
//
//	# what this list is about; lines that begin with # before a key are comments
//	name: the quota is off
//	file: initiator.go
//	test: TestQuota
//	old:
//		if x.used >= c.quota {
//	new:
//		if false {
//	---
//
// file, old and new are needed, and so is name. Some tests run only when they are built
// with a tag, or with variables in their environment:
//
//	tags: simhca
//	env: SIMHCA=mlx5,mlx5 SIMHCA_TRACE=1
//
// In a mutation these lines are for it alone. At the beginning of a list, or behind a
// line of hyphens, they are for all that follow. Empty lines at the end of old and new
// do not count: blank lines may separate mutations, too.
func parse(text string) ([]mutation, error) {
	var all []mutation
	var m *mutation
	var common conditions
	var into *string // of old or new
	done := func() error {
		if m == nil {
			return nil
		}
		m.old, m.new = strings.TrimRight(m.old, "\n"), strings.TrimRight(m.new, "\n")
		switch {
		case m.name == "" || m.file == "" || m.old == "":
			return fmt.Errorf("line %d: name, file and old are needed", m.lineNum)
		case m.old == m.new:
			return fmt.Errorf("line %d: %s changes nothing", m.lineNum, m.name)
		}
		all = append(all, *m)
		m, into = nil, nil
		return nil
	}
	for i, line := range strings.Split(text, "\n") {
		key, value, isKey := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case line == "---" || isKey && key == "name" && m != nil:
			if err := done(); err != nil {
				return nil, err
			}
			if line == "---" {
				continue
			}
		case into == nil && (strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")):
			continue
		}
		if m == nil && isKey && common.set(key, value) {
			continue
		}
		if m == nil {
			m = &mutation{conditions: common, lineNum: i + 1}
		}
		switch {
		case isKey && key == "name":
			m.name, into = value, nil
		case isKey && key == "file":
			m.file, into = value, nil
		case isKey && key == "test":
			m.test, into = strings.TrimSpace(strings.SplitN(value, " #", 2)[0]), nil
		case isKey && key == "package":
			m.pkg, into = value, nil
		case isKey && m.set(key, value):
			into = nil
		case isKey && key == "old" && value == "":
			into = &m.old
		case isKey && key == "new" && value == "":
			into = &m.new
		case into != nil:
			*into += line + "\n"
		default:
			return nil, fmt.Errorf("line %d: %q is neither a key nor below one", i+1, line)
		}
	}
	return all, done()
}

// path returns the file that a mutation changes.
func (m *mutation) path() string { return filepath.Join(m.dir, m.file) }

// tested returns the folder of the package with the tests that must catch it.
func (m *mutation) tested() string { return filepath.Join(m.dir, m.pkg) }

// apply returns the file with the change.
func (m *mutation) apply() ([]byte, error) {
	text, err := os.ReadFile(m.path())
	if err != nil {
		return nil, err
	}
	switch n := strings.Count(string(text), m.old); n {
	case 1:
		return []byte(strings.Replace(string(text), m.old, m.new, 1)), nil
	default:
		return nil, fmt.Errorf("%q: what it replaces is in %s %d times", m.name, m.file, n)
	}
}
