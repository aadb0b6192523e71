package cache

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// declared are the functions, methods and types of a folder: as folder.Name, and Type.Name
// for its methods.
func declared(t *testing.T, folder string, has map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		prefix := filepath.Base(folder) + "."
		if strings.HasSuffix(name, "_test.go") {
			prefix = ""
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				has[prefix+d.Name.Name] = true
				if d.Recv != nil {
					of := d.Recv.List[0].Type
					if p, ok := of.(*ast.StarExpr); ok {
						of = p.X
					}
					has[of.(*ast.Ident).Name+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						has[prefix+s.Name.Name] = true
					}
				}
			}
		}
	}
}

// The tables in doc.go name what exists, and tests that do.
func TestClaims(t *testing.T) {
	if lab.In() {
		t.Skip("has been on the host")
	}
	has := map[string]bool{}
	for _, folder := range []string{".", "server", "internal/wire", "internal/table", "internal/store", "internal/mirror"} {
		declared(t, folder, has)
	}
	require.False(t, has["server.Nothing"])
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "# The claim of")
	require.True(t, ok)
	rows := regexp.MustCompile(`(?m)^//\t(.+?)  +([\w.]+)  +(Test\w+)$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 7+10)
	for _, m := range rows {
		require.True(t, has[m[2]], "%s: there is no %s", m[1], m[2])
		require.True(t, has[m[3]], "%s: there is no %s", m[1], m[3])
	}
}
