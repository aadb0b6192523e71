package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// change returns the names of a function body's changes, and the source with all of them.
func change(t *testing.T, body string) (names []string, changed string) {
	t.Helper()
	src := []byte("package p\nfunc f() {\n" + body + "\n}\n")
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.SkipObjectResolution)
	require.NoError(t, err)
	w := &walker{fset: fset, src: src}
	w.add = func(what string) int {
		names = append(names, what)
		return len(names)
	}
	w.mutants(file.Decls[0].(*ast.FuncDecl).Body)
	changed = string(apply(src, w.out))
	_, err = parser.ParseFile(token.NewFileSet(), "", changed, 0)
	require.NoError(t, err, changed)
	return names, changed
}

func TestMutants(t *testing.T) {
	for body, want := range map[string][]string{
		"if a && (b || c) { x = 1 }": {
			"true instead of `a && (b || c)`", "false instead of `a && (b || c)`",
			"true instead of `a`", "true instead of `(b || c)`", "false instead of `b`", "false instead of `c`", "without `x = 1`",
		},
		"for i < n { i++ }":                      {"false instead of `i < n`", "without `i++`", "with equality: `i < n`"},
		"switch { case ok: f() }":                {"true instead of `ok`", "false instead of `ok`", "without `f()`"},
		"y := a >= b":                            {"without equality: `a >= b`"},
		"y := a == b":                            {"negate `a == b`"},
		"x = 1; y = x":                           {"without `x = 1`", "`x = 1` after `y = x`", "without `y = x`"},
		"x = 1; y = 2":                           {"without `x = 1`", "without `y = 2`"},
		"f(); g()":                               {"without `f()`", "`f()` after `g()`", "without `g()`"},
		"le.PutUint16(b, 1); le.PutUint32(c, d)": {"without `le.PutUint16(b, 1)`", "without `le.PutUint32(c, d)`"},
		"a = le.Uint16(c); b = le.Uint64(c[8:])": {"without `a = le.Uint16(c)`", "without `b = le.Uint64(c[8:])`"},
		"a = le.Uint16(c); c = le.Uint64(d)":     {"without `a = le.Uint16(c)`", "`a = le.Uint16(c)` after `c = le.Uint64(d)`", "without `c = le.Uint64(d)`"},
		"le.PutUint16(b, 1); f(b)":               {"without `le.PutUint16(b, 1)`", "`le.PutUint16(b, 1)` after `f(b)`", "without `f(b)`"},
		"a = le.Uint16(b); le.PutUint16(b, 1)":   {"without `a = le.Uint16(b)`", "`a = le.Uint16(b)` after `le.PutUint16(b, 1)`", "without `le.PutUint16(b, 1)`"},
		"a = r.Uint64(); b = r.Uint64()":         {"without `a = r.Uint64()`", "`a = r.Uint64()` after `b = r.Uint64()`", "without `b = r.Uint64()`"},
		"const c = 1 < 2; _ = c; panic(a == b)":  nil,
		"for { break }; return":                  {"without `return`", "without `break`"},
	} {
		names, _ := change(t, body)
		require.ElementsMatch(t, want, names, body)
	}
	_, changed := change(t, "x = 1; y = x; z = y")
	require.Contains(t, changed, "if mutantOn(2) { y = x\n}; x = 1 }; ")
}

// A package of its own: changes that its tests see, some that they do not, and one that has a test
// hang.
func TestTrial(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"m.go": `package m

func Max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Count(n int) (sum int) {
	for i := 0; i < n; {
		sum++
		i++
	}
	return sum
}

var last int

func Unseen(n int) { last = n }
`,
		"m_test.go": `package m

import "testing"

func TestMax(t *testing.T) {
	if Max(1, 2) != 2 || Max(2, 1) != 2 {
		t.Error("not the greater one")
	}
}

func TestCount(t *testing.T) {
	if Count(3) != 3 {
		t.Error("not counted")
	}
}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	packages, err := find(t.Context(), []string{"."}, "")
	require.NoError(t, err)
	require.Len(t, packages, 1)
	p := &packages[0]
	require.NoError(t, p.parse())
	tr, err := newTrial(t.Context(), p, "")
	require.NoError(t, err)
	defer tr.close()
	tr.grace = 4 * time.Second
	by := make(map[string]string)
	for _, m := range p.mutants {
		got, err := tr.try(t.Context(), m.id)
		require.NoError(t, err)
		by[strings.TrimPrefix(m.name, "/m.go ")] = got
	}
	require.Equal(t, map[string]string{
		"Max: true instead of `a > b`":    "TestMax",
		"Max: false instead of `a > b`":   "TestMax",
		"Max: with equality: `a > b`":     "",
		"Count: false instead of `i < n`": "TestCount",
		"Count: with equality: `i < n`":   "TestCount",
		"Count: without `sum++`":          "TestCount",
		"Count: without `i++`":            "TestCount", // does not end
		"Unseen: without `last = n`":      "",
	}, by)
}

// Every change in the list of those without a difference exists, and has a reason.
func TestEquivalent(t *testing.T) {
	reasons, err := parseEquivalent(equivalentText)
	require.NoError(t, err)
	t.Chdir("../..")
	packages, err := find(t.Context(), machines, "")
	require.NoError(t, err)
	for i := range packages {
		require.NoError(t, packages[i].parse())
		for _, m := range packages[i].mutants {
			delete(reasons, m.name)
		}
	}
	require.Empty(t, reasons)

	got, err := parseEquivalent("# about\na\nb\n\tsame\n")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "same", "b": "same"}, got)
	for _, bad := range []string{"\treason\n", "a\n"} {
		_, err := parseEquivalent(bad)
		require.Error(t, err, bad)
	}
}
