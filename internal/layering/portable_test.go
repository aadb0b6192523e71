//go:build !race

package layering_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

// TestOtherSystems: what a program imports compiles on systems other than Linux, with its
// tests. All is read and type-checked from source, which takes a tenth of a build of it.
func TestOtherSystems(t *testing.T) {
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax,
		Dir: "../..", Tests: true, Env: append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0"),
	}
	list, err := packages.Load(cfg, "./cgo", "./verbs/...", "./dc", "./srd", "./lockoffload", "./pacer/...", "./cache/...", "./ci/lab", "./cmd/...")
	require.NoError(t, err)
	require.Greater(t, len(list), 50)
	packages.Visit(list, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			t.Error(e)
		}
	})
}
