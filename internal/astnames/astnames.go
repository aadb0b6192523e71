// Package astnames lists the names that a folder's Go files declare, for tests of what
// documents say of the code.
package astnames

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// In returns the names of a folder's code and those of its test files: F, T, T.Method
// and T.Field, constants and variables too.
func In(folder string) (code, tests map[string]bool, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("astnames: no Go files in %s", folder)
	}
	if err != nil {
		return nil, nil, err
	}
	code, tests = map[string]bool{}, map[string]bool{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return nil, nil, err
		}
		has := code
		if strings.HasSuffix(name, "_test.go") {
			has = tests
		}
		for _, d := range f.Decls {
			add(has, d)
		}
	}
	return code, tests, nil
}

func add(has map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if r := Receiver(d); r != "" {
			name = r + "." + name
		}
		has[name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			addSpec(has, s)
		}
	}
}

func addSpec(has map[string]bool, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			has[n.Name] = true
		}
	case *ast.TypeSpec:
		has[s.Name.Name] = true
		if st, ok := s.Type.(*ast.StructType); ok {
			for _, f := range st.Fields.List {
				for _, n := range f.Names {
					has[s.Name.Name+"."+n.Name] = true
				}
			}
		}
	}
}

// Receiver is the name of the type that a method is declared on, or empty.
func Receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	for typ := d.Recv.List[0].Type; ; {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr: // of type parameters
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name
		default:
			return "?"
		}
	}
}
