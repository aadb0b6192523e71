package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/astnames"
)

// pkg is a package to change. The exported fields are those of go list.
type pkg struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
	Module                    struct{ Path string }

	mutants []*mutant
	changed map[string][]byte // the files with all changes in them, by their paths
}

// find returns the packages that match patterns and have tests.
func find(ctx context.Context, patterns []string, tags string) ([]pkg, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"list", "-tags", tags, "-json=Dir,ImportPath,GoFiles,TestGoFiles,XTestGoFiles,Module"}, patterns...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// short returns the package's path inside the module.
func (p *pkg) short() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

// parse makes the changes of all functions of the package.
func (p *pkg) parse() error {
	p.changed = make(map[string][]byte)
	seen := make(map[string]int)
	for _, file := range p.GoFiles {
		path := filepath.Join(p.Dir, file)
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		w := &walker{fset: fset, src: src}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || describes[fn.Name.Name] {
				continue
			}
			where := fmt.Sprintf("%s/%s %s: ", p.short(), file, functionName(fn))
			w.add = func(what string) int {
				name := where + what
				if seen[name]++; seen[name] > 1 {
					name = fmt.Sprintf("%s (%d)", name, seen[name])
				}
				m := &mutant{id: len(p.mutants) + 1, name: name}
				p.mutants = append(p.mutants, m)
				return m.id
			}
			w.mutants(fn.Body)
		}
		p.changed[path] = apply(src, w.out)
	}
	return nil
}

// describes has the methods with results for people to read.
var describes = map[string]bool{"String": true, "Error": true, "GoString": true, "LogValue": true}

func functionName(fn *ast.FuncDecl) string {
	if r := astnames.Receiver(fn); r != "" {
		return r + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// apply returns src with the edits in it.
func apply(src []byte, edits []edit) []byte {
	order := make([]int, len(edits))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := edits[i], edits[j]
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.closing != b.closing:
			if a.closing {
				return -1
			}
			return 1
		case a.closing:
			return j - i
		}
		return i - j
	})
	var out bytes.Buffer
	done := 0
	for _, i := range order {
		out.Write(src[done:edits[i].at])
		done = edits[i].at
		out.WriteString(edits[i].text)
	}
	out.Write(src[done:])
	return out.Bytes()
}

// parseEquivalent returns the reasons by the names of changes. A line that begins with a tab is
// the reason for those above it.
func parseEquivalent(text string) (map[string]string, error) {
	reasons := make(map[string]string)
	var names []string
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		switch line := s.Text(); {
		case line == "" || line[0] == '#':
		case line[0] != '\t':
			names = append(names, line)
		case len(names) == 0:
			return nil, fmt.Errorf("equivalent.txt: a reason for nothing: %s", line)
		default:
			for _, name := range names {
				reasons[name] = strings.TrimSpace(line)
			}
			names = nil
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("equivalent.txt: no reason: %s", names[0])
	}
	return reasons, s.Err()
}
