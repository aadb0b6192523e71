package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// concurrent is what a package has that starts goroutines, locks or shares memory with C. A comment that
// has it costs the package the race detector's time, no more.
var concurrent = []string{"\tgo ", ".Go(", `"sync"`, `"sync/`, `"net/http`, ".Parallel(", `import "C"`, `"unsafe"`}

// modules are no part of this one's workspace: a job tests each as its users do.
var modules = words("examples/yourmodule examples/integrations")

// kubernetes is a module likewise, without devices.
const kubernetes = "ci/kubernetes"

// outside reports whether a folder has a module that is no part of the workspace.
func outside(root, path string) bool {
	name, err := filepath.Rel(root, path)
	return err == nil && (name == kubernetes || slices.Contains(modules, name))
}

// alone are packages that the race detector slows down for nothing all the same. They read the
// source, or unpack files, and programs that users run have nothing of them; or they are machines of
// which tests run several at a time.
var alone = words("./internal/layering ./ci/docs ./ci/internal/debian ./ci/mutate ./cache/internal/own ./cache/internal/store")

// units returns the packages with tests: those that the race detector has something to see in, and
// the others, of which state machines are the most.
func (r *runner) units() (raced, others []string, err error) {
	found := make(map[string]bool) // whether a file of the folder has something concurrent
	tested := make(map[string]bool)
	err = filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != r.root && (strings.HasPrefix(name, ".") || name == "build" || name == "testdata" || outside(r.root, path)):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go"):
			b, err := os.ReadFile(path)
			folder, _ := filepath.Rel(r.root, filepath.Dir(path))
			pkg := "./" + folder
			found[pkg] = found[pkg] || slices.ContainsFunc(concurrent, func(s string) bool { return bytes.Contains(b, []byte(s)) })
			tested[pkg] = tested[pkg] || strings.HasSuffix(name, "_test.go")
			return err
		}
		return nil
	})
	for pkg, yes := range found {
		switch {
		case !tested[pkg]:
		case slices.Contains(alone, pkg) || !yes:
			others = append(others, pkg)
		default:
			raced = append(raced, pkg)
		}
	}
	slices.Sort(raced)
	slices.Sort(others)
	return raced, others, err
}
