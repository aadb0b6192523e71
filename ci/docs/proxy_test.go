package docs

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gomod "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxied is the version of this tree in its module proxy.
var proxied = gomod.Version{Path: "github.com/goverbs/goverbs", Version: "v0.1.0"}

// moduleProxy writes a module proxy with one version of one module, this tree as git would commit it, and returns
// its folder. The modules that goverbs requires are in the go command's own cache afterwards, which is a proxy too.
func moduleProxy(t *testing.T) string {
	t.Helper()
	run := func(name string, arg ...string) []byte {
		c := exec.CommandContext(t.Context(), name, arg...)
		c.Dir = root
		c.Env = append(os.Environ(), "GOWORK=off")
		out, err := c.Output()
		require.NoError(t, err, "%s %v", name, arg)
		return out
	}
	run("go", "list", "-m", "all")
	run("go", "mod", "download")

	proxy := t.TempDir()
	dir := filepath.Join(proxy, proxied.Path, "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(name string, b []byte) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644)) }
	write("list", []byte(proxied.Version+"\n"))
	info, err := json.Marshal(map[string]any{"Version": proxied.Version, "Time": time.Now().UTC()})
	require.NoError(t, err)
	write(proxied.Version+".info", info)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	write(proxied.Version+".mod", mod)

	var tree []zip.File
	for name := range strings.SplitSeq(string(run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")), "\x00") {
		if _, err := os.Lstat(filepath.Join(root, name)); name != "" && !errors.Is(err, fs.ErrNotExist) {
			tree = append(tree, sourceFile(name))
		}
	}
	z, err := os.Create(filepath.Join(dir, proxied.Version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.Create(z, proxied, tree)) // without nested modules
	require.NoError(t, z.Close())
	return proxy
}

// sourceFile is a file of the tree, with its path from the root.
type sourceFile string

func (f sourceFile) Path() string                 { return filepath.ToSlash(string(f)) }
func (f sourceFile) Lstat() (fs.FileInfo, error)  { return os.Lstat(filepath.Join(root, string(f))) }
func (f sourceFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(root, string(f))) }
