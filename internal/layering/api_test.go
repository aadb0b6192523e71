package layering

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// api is the module as another one meets it: packages without function bodies, and the comments of
// their types and fields.
type api struct {
	fset     *token.FileSet
	known    map[string]*types.Package // by import path
	files    map[string][]*ast.File
	public   []string                // paths of libraries that other modules can import
	sentinel map[string]ast.Expr     // "path.ErrName": what it is set to
	named    map[types.Object]string // internal types with an alias that can be imported
}

// Import type-checks packages of the module, and takes all others for empty.
func (a *api) Import(p string) (*types.Package, error) {
	if p := a.known[p]; p != nil {
		return p, nil
	}
	if !strings.HasPrefix(p, module) {
		return others(a.known).Import(p)
	}
	c := build.Default
	c.GOOS, c.GOARCH, c.CgoEnabled = "linux", "amd64", false
	dir, err := c.ImportDir(filepath.Join("../..", strings.TrimPrefix(p, module)), 0)
	if err != nil {
		return nil, err
	}
	return a.check(p, dir.Dir, dir.GoFiles)
}

func (a *api) check(p, dir string, names []string) (*types.Package, error) {
	for _, n := range names {
		f, err := parser.ParseFile(a.fset, filepath.Join(dir, n), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		a.files[p] = append(a.files[p], f)
	}
	cfg := types.Config{IgnoreFuncBodies: true, Importer: a, Error: func(error) {}} // of what the packages outside would say
	pkg, _ := cfg.Check(p, a.fset, a.files[p], nil)
	a.known[p] = pkg
	return pkg, nil
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{fset: token.NewFileSet(), known: map[string]*types.Package{}, files: map[string][]*ast.File{}}
	seen := map[string]bool{}
	for _, f := range files(t) {
		folder := path.Dir(f.path)
		switch first, _, _ := strings.Cut(folder, "/"); {
		case seen[folder], strings.HasSuffix(f.path, "_test.go"), first == "ci", first == "cmd", first == "cgo", first == "examples", strings.Contains(folder+"/", "internal/"):
			continue
		}
		seen[folder] = true
		_, err := a.Import(module + folder)
		require.NoError(t, err)
		a.public = append(a.public, module+folder)
	}
	require.Greater(t, len(a.public), 15, "%v", a.public)
	a.index()
	return a
}

// index finds sentinels, and the aliases of public packages.
func (a *api) index() {
	a.sentinel, a.named = map[string]ast.Expr{}, map[types.Object]string{}
	for p, files := range a.files {
		specs(files, func(s ast.Spec, _ string) {
			v, ok := s.(*ast.ValueSpec)
			for i := 0; ok && i < min(len(v.Names), len(v.Values)); i++ {
				if strings.HasPrefix(v.Names[i].Name, "Err") {
					a.sentinel[p+"."+v.Names[i].Name] = v.Values[i]
				}
			}
		})
	}
	for _, p := range a.public {
		scope := a.known[p].Scope()
		for _, n := range scope.Names() {
			if o, ok := scope.Lookup(n).(*types.TypeName); ok && o.IsAlias() && o.Exported() {
				if named, ok := types.Unalias(o.Type()).(*types.Named); ok {
					a.named[named.Obj()] = p + "." + n
				}
			}
		}
	}
}

// specs calls f for the declarations of files, with their comments.
func specs(files []*ast.File, f func(s ast.Spec, comment string)) {
	for _, file := range files {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			for i := 0; ok && i < len(g.Specs); i++ {
				comment := g.Doc.Text()
				switch s := g.Specs[i].(type) {
				case *ast.TypeSpec:
					comment += s.Doc.Text() + s.Comment.Text()
				case *ast.ValueSpec:
					comment += s.Doc.Text() + s.Comment.Text()
				}
				f(g.Specs[i], comment)
			}
		}
	}
}

// hidden returns the types in t that another module cannot name.
func (a *api) hidden(t types.Type) (out []string) {
	s := surface{names: map[string]bool{}, visit: func(o types.Object) bool {
		if o.Pkg() == nil || !strings.HasPrefix(o.Pkg().Path(), module) {
			return false
		}
		inside := strings.Contains(o.Pkg().Path()+"/", "/internal/") || !o.Exported()
		if inside && a.named[o] == "" {
			out = append(out, o.Pkg().Name()+"."+o.Name())
		}
		return false
	}}
	s.mentioned(t)
	return out
}

// faults says where a public package breaks the conventions.
func (a *api) faults(p string) (out []string) {
	fault := func(format string, args ...any) {
		out = append(out, strings.TrimPrefix(p, module)+": "+fmt.Sprintf(format, args...))
	}
	scope := a.known[p].Scope()
	members := func(name string, t types.Type) {
		for _, h := range a.hidden(t) {
			fault("%s has the type %s, which no other module can name", name, h)
		}
	}
	for _, n := range scope.Names() {
		o := scope.Lookup(n)
		if !o.Exported() {
			continue
		}
		tn, ok := o.(*types.TypeName)
		if !ok {
			members(n, o.Type())
			continue
		}
		named, ok := o.Type().(*types.Named)
		if !ok || tn.IsAlias() {
			continue
		}
		if st, ok := named.Underlying().(*types.Struct); ok {
			for f := range st.Fields() {
				if f.Exported() {
					members(n+"."+f.Name(), f.Type())
				}
			}
		} else {
			members(n, named.Underlying())
		}
		for m := range named.Methods() {
			if m.Exported() {
				members(n+"."+m.Name(), m.Type())
			}
		}
	}
	specs(a.files[p], func(s ast.Spec, comment string) {
		if s, ok := s.(*ast.TypeSpec); ok && s.Name.IsExported() {
			a.aliased(p, s, comment, fault)
			loggers(s, fault)
		}
	})
	for _, f := range a.files[p] {
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && types.ExprString(sel) == "slog.Default" {
				fault("no package logs to %s", types.ExprString(sel))
			}
			return true
		})
	}
	for _, n := range scope.Names() {
		if o, ok := scope.Lookup(n).(*types.TypeName); ok && strings.HasSuffix(n, "OpError") {
			if named, ok := types.Unalias(o.Type()).(*types.Named); !ok || named.Obj().Pkg().Path() != module+"internal/operr" {
				fault("%s is not the one of internal/operr", n)
			}
		}
	}
	return out
}

// aliased refuses an alias of an internal struct with exported fields, which go doc does not show
// with it. The one OpError of all packages has them in its comment.
func (a *api) aliased(p string, s *ast.TypeSpec, comment string, fault func(string, ...any)) {
	o, ok := a.known[p].Scope().Lookup(s.Name.Name).(*types.TypeName)
	if !ok || !o.IsAlias() {
		return
	}
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if !ok || !strings.Contains(named.Obj().Pkg().Path()+"/", "/internal/") || slices.Contains(a.public, a.imported(p, s.Type)) {
		return
	}
	st, ok := named.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for f := range st.Fields() {
		switch name := strings.TrimPrefix(named.Obj().Pkg().Path(), module) + "." + named.Obj().Name(); {
		case !f.Exported():
		case name != "internal/operr.Error":
			fault("go doc shows no fields of %s, which is an alias of %s", s.Name.Name, name)
			return
		case !regexp.MustCompile(`\b` + f.Name() + `\b`).MatchString(comment):
			fault("the comment of %s has not its field %s", s.Name.Name, f.Name())
		}
	}
}

// imported returns the import path of the package that an expression of p selects from.
func (a *api) imported(p string, e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	for _, f := range a.files[p] {
		for _, i := range f.Imports {
			if to := strings.Trim(i.Path.Value, `"`); path.Base(to) == types.ExprString(sel.X) {
				return to
			}
		}
	}
	return ""
}

// loggers requires of a struct's loggers that they have that name, and that nil is silent.
func loggers(s *ast.TypeSpec, fault func(string, ...any)) {
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		if types.ExprString(f.Type) != "*slog.Logger" {
			continue
		}
		for _, n := range f.Names {
			switch comment := f.Doc.Text() + f.Comment.Text(); {
			case !n.IsExported():
			case n.Name != "Logger":
				fault("%s.%s is called Logger", s.Name.Name, n.Name)
			case !strings.Contains(strings.ReplaceAll(comment, "\n", " "), "nil: silent"):
				fault("the comment of %s.Logger does not say nil: silent", s.Name.Name)
			}
		}
	}
}

// origin follows a sentinel to where it is made.
func (a *api) origin(name string) string {
	p, _, _ := strings.Cut(name, ".Err")
	for {
		sel, ok := a.sentinel[name].(*ast.SelectorExpr)
		if !ok {
			return name
		}
		p = a.imported(p, sel)
		name = p + "." + sel.Sel.Name
		if _, ok := a.sentinel[name]; !ok {
			return name
		}
	}
}

// ownMeaning are sentinels that say something else in each package.
var ownMeaning = []string{
	"ErrRefused", // a target has no session for it, a receiver no buffer, a server nothing of that kind
	"ErrMessage", // malformed: an address message, and what agents say
}

// twice returns the names of public sentinels that are several values.
func (a *api) twice() (out []string) {
	made := map[string]map[string]bool{}
	for _, p := range a.public {
		for _, n := range a.known[p].Scope().Names() {
			if a.sentinel[p+"."+n] != nil && !slices.Contains(ownMeaning, n) {
				if made[n] == nil {
					made[n] = map[string]bool{}
				}
				made[n][a.origin(p+"."+n)] = true
			}
		}
	}
	for n, origins := range made {
		if len(origins) > 1 {
			out = append(out, fmt.Sprint(n, " is made in ", slices.Sorted(maps.Keys(origins))))
		}
	}
	return out
}

// TestAPI: what public packages export can be named by other modules, there is one OpError, each
// sentinel is one value, and loggers have one name and meaning.
func TestAPI(t *testing.T) {
	a := newAPI(t)
	for _, p := range a.public {
		for _, f := range a.faults(p) {
			t.Error(f)
		}
	}
	for _, n := range a.twice() {
		t.Error(n)
	}
	require.Equal(t, module+"internal/operr.ErrUnreachable", a.origin(module+"dc.ErrUnreachable"))
}

// What is wrong is seen.
func TestWrongAPI(t *testing.T) {
	a := newAPI(t)
	p := module + "api"
	_, err := a.check(p, "testdata/api", []string{"api.go"})
	require.NoError(t, err)
	a.public = append(a.public, p)
	a.index()
	found := strings.ReplaceAll(strings.Join(a.faults(p), "\n"), "api: ", "")
	require.ElementsMatch(t, []string{
		"Config.Log is called Logger",
		"the comment of Config.Logger does not say nil: silent",
		"go doc shows no fields of Peer, which is an alias of internal/nldev.Device",
		"no package logs to slog.Default",
		"OpError is not the one of internal/operr",
		"Found has the type pending.Conns, which no other module can name",
		"Found has the type api.private, which no other module can name",
		"Table.Pending has the type pending.Conns, which no other module can name",
	}, strings.Split(found, "\n"))
	twice := a.twice()
	require.Len(t, twice, 1)
	require.Contains(t, twice[0], "ErrClosed is made in")
	require.Contains(t, twice[0], module+"internal/operr.ErrClosed")
}
