package layering

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is a package as its users see it: types without function bodies.
func page(t *testing.T, folder string, known map[string]*types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") || strings.HasSuffix(n, "_other.go") {
			continue
		}
		f, err := parser.ParseFile(fset, n, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	cfg := types.Config{
		IgnoreFuncBodies: true,
		Importer:         others(known),
		Error:            func(error) {}, // of what the packages outside would say
	}
	p, _ := cfg.Check(module+folder, fset, files, nil)
	return p
}

// others imports the packages that are known, and empty ones in place of all others.
type others map[string]*types.Package

func (o others) Import(path string) (*types.Package, error) {
	if p := o[path]; p != nil {
		return p, nil
	}
	if path == "C" {
		return nil, errors.New("no C")
	}
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

// surface collects the exported identifiers that a program meets.
type surface struct {
	names map[string]bool
	doors map[string]bool         // types that count without their methods
	visit func(types.Object) bool // not nil: sees each object instead, and says whether to go on into it
}

// object adds a function, type, constant or variable and what it mentions.
func (s *surface) object(o types.Object) {
	if s.visit != nil && !s.visit(o) {
		return
	}
	if o.Pkg() == nil || !o.Exported() || !strings.HasPrefix(o.Pkg().Path(), module) {
		return
	}
	name := o.Pkg().Name() + "." + o.Name()
	if s.names[name] {
		return
	}
	s.names[name] = true
	tn, ok := o.(*types.TypeName)
	if !ok {
		s.mentioned(o.Type())
		return
	}
	if s.doors[name] {
		return
	}
	s.mentioned(o.Type().Underlying())
	named, ok := o.Type().(*types.Named)
	if !ok || tn.IsAlias() {
		return
	}
	for m := range named.Methods() {
		if m.Exported() {
			s.names[name+"."+m.Name()] = true
			s.mentioned(m.Type())
		}
	}
	scope := o.Pkg().Scope()
	for _, n := range scope.Names() { // its constants
		if c, ok := scope.Lookup(n).(*types.Const); ok && types.Identical(c.Type(), named) {
			s.object(c)
		}
	}
}

// mentioned adds the types that a type is made of.
func (s *surface) mentioned(t types.Type) {
	switch t := t.(type) {
	case *types.Named:
		s.object(t.Obj())
	case *types.Alias:
		s.object(t.Obj())
	case *types.Pointer:
		s.mentioned(t.Elem())
	case *types.Slice:
		s.mentioned(t.Elem())
	case *types.Array:
		s.mentioned(t.Elem())
	case *types.Chan:
		s.mentioned(t.Elem())
	case *types.Map:
		s.mentioned(t.Key())
		s.mentioned(t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			s.mentioned(v.Type())
		}
		for v := range t.Results().Variables() {
			s.mentioned(v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				s.mentioned(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			s.mentioned(m.Type())
		}
	}
}

// whole returns the exported identifiers of a package without fields.
func whole(p *types.Package) (all []string) {
	for _, n := range p.Scope().Names() {
		o := p.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		all = append(all, n)
		if named, ok := o.Type().(*types.Named); ok {
			if _, ok := o.(*types.TypeName); ok {
				for m := range named.Methods() {
					if m.Exported() {
						all = append(all, n+"."+m.Name())
					}
				}
			}
		}
	}
	return all
}

// TestSurface holds the number of exported identifiers of package verbs, and of those that a
// program with links, requesters, receivers and streams meets there: its types with their methods
// and constants, the types in their signatures and configurations, and the errors. Objects below a
// link count without their methods.
func TestSurface(t *testing.T) {
	verbs := page(t, "verbs", nil)
	stream := page(t, "verbs/stream", map[string]*types.Package{module + "verbs": verbs})
	s := surface{names: map[string]bool{}, doors: map[string]bool{}}
	for _, n := range []string{"Device", "PD", "CQ", "QP", "SRQ", "AH", "WCError", "WCStatus"} {
		s.doors["verbs."+n] = true
	}
	meets := []string{"Link", "NewLink", "DialLink", "AcceptLink", "ServeLinks", "OfferMemory", "Requester", "NewRequester", "Receiver", "NewReceiver",
		"ReadWR", "WriteWR", "SendWR", "SendImmWR", "Uint64", "OpError", "InFlightError", "WCError", "WCStatus"}
	for _, n := range verbs.Scope().Names() {
		if strings.HasPrefix(n, "Err") || slices.Contains(meets, n) {
			s.object(verbs.Scope().Lookup(n))
		}
	}
	for _, n := range stream.Scope().Names() {
		s.object(stream.Scope().Lookup(n))
	}
	for n := range s.names {
		if !strings.HasPrefix(n, "verbs.") {
			delete(s.names, n)
		}
	}
	for _, n := range meets {
		require.True(t, s.names["verbs."+n], n)
	}
	require.True(t, s.names["verbs.Region.At"] && s.names["verbs.WRRead"] && s.names["verbs.LinkConfig"] && !s.names["verbs.QP.Modify"])
	few, all := slices.Sorted(maps.Keys(s.names)), whole(verbs)
	require.LessOrEqual(t, len(few), 181, "%v", few)
	require.LessOrEqual(t, len(all), 502, "a new name takes the place of another one, or of a method of a type")
}
