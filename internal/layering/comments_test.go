package layering

import (
	"go/ast"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
)

// Every exported name of the packages that other modules import has a comment: go doc shows it. A
// comment of a group of constants or variables is that of each in it.
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
	require.Greater(t, documented, 1000)
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
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver)) {
			look(receiver+"."+d.Name.Name, d.Doc)
		}
	case *ast.GenDecl:
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
