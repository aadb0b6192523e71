//go:build linux

package verbs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// featureRow is a row of the table in ARCHITECTURE.md.
type featureRow struct {
	calls, tests []string
	on           map[string]string // by kernel: works, refused
	simulated    string            // by libmlx5 and libefa: runs, refused, or nothing; then what else was looked at
}

var featureTable = sync.OnceValues(func() (map[string]featureRow, error) {
	b, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(b), "## Features\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	rows := make(map[string]featureRow)
	code := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (out []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
		return out
	}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || strings.Contains(line, "---") || strings.Contains(line, "| feature |") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[1]] = featureRow{calls: names(cells[2]), tests: names(cells[3]), on: map[string]string{"6.1": cells[4], "6.12": cells[5]}, simulated: cells[6]}
	}
	return rows, nil
})

// TestFeatureTable: the calls and tests that the table names exist. What it says
// of a kernel is checked by refused, in the tests on the device.
func TestFeatureTable(t *testing.T) {
	rows, err := featureTable()
	require.NoError(t, err)
	require.Greater(t, len(rows), 40)
	has := declared(t)
	for name, r := range rows {
		for word := range strings.FieldsFuncSeq(r.simulated, func(c rune) bool { return strings.ContainsRune("; ,", c) }) {
			require.Contains(t, []string{"runs", "refused", "calls", "layout"}, word, name)
		}
		require.NotEmpty(t, r.calls, name)
		require.NotEmpty(t, r.tests, name)
		for _, c := range r.calls {
			require.True(t, has[c], "%s: there is no %s", name, c)
		}
		for _, test := range r.tests {
			require.True(t, strings.HasPrefix(test, "Test") && has[test], "%s: there is no %s", name, test)
		}
		for kernel, state := range r.on {
			require.Contains(t, []string{"works", "refused"}, state, "%s on %s", name, kernel)
		}
	}
	require.False(t, has["Batch.Nothing"])
}

// declared are the names of this package and its tests: F, T, T.Method, T.Field; and
// those of the packages in it, as rdmacm.F. All tests are without a package.
func declared(t *testing.T) map[string]bool {
	has := make(map[string]bool)
	for _, folder := range []string{".", "rdmacm", "stream"} {
		files := token.NewFileSet()
		entries, err := fs.Glob(os.DirFS(folder), "*.go")
		require.NoError(t, err)
		for _, name := range entries {
			f, err := parser.ParseFile(files, filepath.Join(folder, name), nil, 0)
			require.NoError(t, err)
			prefix := ""
			if folder != "." && !strings.HasSuffix(name, "_test.go") {
				prefix = folder + "."
			}
			for _, d := range f.Decls {
				declare(has, prefix, d)
			}
		}
	}
	return has
}

func declare(has map[string]bool, prefix string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if r := rig.ReceiverOf(d); r != "" {
			prefix += r + "."
		}
		has[prefix+d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			declareSpec(has, prefix, s)
		}
	}
}

func declareSpec(has map[string]bool, prefix string, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			has[prefix+n.Name] = true
		}
	case *ast.TypeSpec:
		has[prefix+s.Name.Name] = true
		if st, ok := s.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				for _, n := range f.Names {
					has[prefix+s.Name.Name+"."+n.Name] = true
				}
			}
		}
	}
}
