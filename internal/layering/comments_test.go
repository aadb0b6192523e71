package layering

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
)

// Every exported name of the packages that other modules import has a comment, which go doc shows, but
// for methods that fmt and errors call. A comment of a group of constants or variables is that of each
// in it, and that of a type is that of its constants.
func TestExportedNamesHaveComments(t *testing.T) {
	a := newAPI(t)
	documented := 0
	for _, p := range a.public {
		for _, f := range a.files[p] {
			for _, d := range f.Decls {
				for _, name := range uncommented(d, &documented) {
					t.Errorf("%s.%s (%s) has no comment", p, name, a.fset.Position(d.Pos()))
				}
			}
		}
	}
	require.Greater(t, documented, 900)
}

// uncommented returns the exported names of a declaration that have no comment, and counts the others.
func uncommented(d ast.Decl, documented *int) (out []string) {
	look := func(name string, comments ...*ast.CommentGroup) {
		for _, c := range comments {
			if c != nil {
				*documented++
				return
			}
		}
		out = append(out, name)
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		receiver := astnames.Receiver(d)
		called := d.Recv != nil && slices.Contains([]string{"String", "Error", "Unwrap"}, d.Name.Name)
		if d.Name.IsExported() && !called && (d.Recv == nil || ast.IsExported(receiver)) {
			look(receiver+"."+d.Name.Name, d.Doc)
		}
	case *ast.GenDecl:
		if d.Tok == token.CONST && typed(d) {
			break
		}
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					look(s.Name.Name, s.Doc, s.Comment, d.Doc)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() {
					look(s.Names[0].Name, s.Doc, s.Comment, d.Doc)
				}
			}
		}
	}
	return out
}

// typed reports whether the constants of a declaration have a type.
func typed(d *ast.GenDecl) bool {
	first := d.Specs[0].(*ast.ValueSpec)
	if first.Type != nil || len(first.Values) == 0 {
		return first.Type != nil
	}
	_, conversion := first.Values[0].(*ast.CallExpr)
	return conversion
}
