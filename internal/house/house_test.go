// Package house has the test of who may import whom (ARCHITECTURE.md).
package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/goverbs/goverbs/"

// below are the folders that a folder's packages may import, beside their own and
// the standard library. What is not named here may import all. A folder inside
// another one has rules of its own if it is named; whoever may import the outer
// one may import it.
var below = map[string][]string{
	"cgo":         {},
	"internal":    {},
	"verbs":       {"cgo", "internal", "verbs/netpath"},
	"dc":          {"verbs", "internal"},
	"srd":         {"verbs", "internal"},
	"lockoffload": {"verbs", "internal"},
	"pacer":       {"verbs", "internal"},
	"cache":       {"verbs", "dc", "srd", "lockoffload", "pacer", "internal"},

	"verbs/netpath": {"internal"},
}

// folder is the innermost folder with rules of a file or package, else the
// outermost one of all.
func folder(path string) string {
	for p := path; p != "."; p = pathpkg.Dir(p) {
		if _, ruled := below[p]; ruled {
			return p
		}
	}
	outer, _, _ := strings.Cut(path, "/")
	return outer
}

// unsafeFiles are those outside of cgo that may import unsafe.
var unsafeFiles = []string{"verbs/view.go"}

// machine are the files of the systems' state machines, which import neither
// I/O nor clocks nor locks.
var (
	machine = regexp.MustCompile(`^(dc|srd|lockoffload|pacer|cache)/internal/`)
	impure  = []string{"context", "net", "os", "sync", "sync/atomic", "syscall", module + "verbs"}
	clock   = regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|NewTimer|NewTicker|Tick)\b`)
)

type file struct {
	path    string // from the module's root, with slashes
	imports []string
}

func files(t *testing.T) []file {
	t.Helper()
	const root = "../.."
	var out []file
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "build" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go"):
			return nil
		}
		a, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := file{path: rel}
		for _, i := range a.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, name)
		}
		out = append(out, f)
		return nil
	}))
	require.Greater(t, len(out), 100)
	return out
}

// wrong says what is wrong with an import.
func wrong(path, name string) string {
	from := folder(path)
	test := strings.HasSuffix(path, "_test.go")
	switch {
	case machine.MatchString(path) && !test && slices.Contains(impure, name):
		return "a state machine has no I/O, clock or lock"
	case name == "C" && from != "cgo":
		return `import "C" is for cgo alone`
	case name == "unsafe" && from != "cgo" && !slices.Contains(unsafeFiles, path) && !test:
		return "unsafe is for cgo, and for " + strings.Join(unsafeFiles, ", ")
	case !strings.HasPrefix(name, module):
		return ""
	}
	to := folder(strings.TrimPrefix(name, module))
	allowed, ruled := below[from]
	if test {
		allowed = append(slices.Clone(allowed), "ci") // helpers
		if from != "verbs/netpath" {
			allowed = append(allowed, "cgo", "internal", "verbs") // and stand-ins below
		}
	}
	inside := func(outer string) bool { return to == outer || strings.HasPrefix(to, outer+"/") }
	if !ruled || to == from || slices.ContainsFunc(allowed, inside) {
		return ""
	}
	return from + " stands below " + to + ", or beside it"
}

// Arrows point down.
func TestImports(t *testing.T) {
	for _, f := range files(t) {
		for _, i := range f.imports {
			if w := wrong(f.path, i); w != "" {
				t.Errorf("%s imports %s: %s", f.path, i, w)
			}
		}
		if machine.MatchString(f.path) && !strings.HasSuffix(f.path, "_test.go") {
			source, err := os.ReadFile(filepath.Join("../..", f.path))
			require.NoError(t, err)
			if c := clock.Find(source); c != nil {
				t.Errorf("%s has %s: a state machine is told the time", f.path, c)
			}
		}
	}
}

// What is wrong is seen.
func TestWrongImports(t *testing.T) {
	for path, name := range map[string]string{
		"verbs/a.go":               module + "dc",
		"verbs/a_test.go":          module + "dc",
		"dc/a.go":                  module + "lockoffload",
		"dc/b.go":                  module + "cgo",
		"lockoffload/a.go":         module + "ci/lab",
		"internal/turn/a.go":       module + "verbs",
		"cgo/a.go":                 module + "verbs",
		"verbs/b.go":               "C",
		"verbs/c.go":               "unsafe",
		"cmd/x/a.go":               "C",
		"cache/server/server.go":   module + "ci/lab",
		"srd/internal/engine/a.go": "net",

		"verbs/netpath/a.go":      module + "verbs",
		"verbs/netpath/a_test.go": module + "verbs",
		"verbs/netpath/b.go":      module + "cgo",
		"verbs/netpath/b_test.go": module + "cgo",
		"verbs/netpath/c.go":      "C",
		"internal/nldev/a.go":     module + "verbs/netpath",
	} {
		require.NotEmpty(t, wrong(path, name), "%s imports %s", path, name)
	}
	for path, name := range map[string]string{
		"verbs/view.go":          "unsafe",
		"verbs/a_test.go":        module + "ci/lab",
		"dc/a.go":                module + "verbs",
		"cache/server/server.go": module + "lockoffload",
		"cmd/x/a.go":             module + "dc",

		"verbs/a.go":              module + "verbs/netpath",
		"verbs/netpath/a.go":      module + "internal/nldev",
		"verbs/netpath/a_test.go": module + "ci/lab",
		"dc/b.go":                 module + "verbs/netpath",
	} {
		require.Empty(t, wrong(path, name), "%s imports %s", path, name)
	}
}
