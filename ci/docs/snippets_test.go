package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// given is what the pieces of Go in a document use without declaring it.
var given = map[string]string{
	"README.md": `
		var ctx context.Context
		var listener net.Listener
		var memory []byte
		var serve func(context.Context, *verbs.Link) error`,
	"docs/cache.md": `
		var ctx context.Context`,
	"ci/README.md": `
		var t *testing.T
		var ctx context.Context`,
}

var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "net": "net", "testing": "testing", "time": "time",
	"verbs": module + "verbs", "rdmacm": module + "verbs/rdmacm", "stream": module + "verbs/stream", "netpath": module + "verbs/netpath", "dc": module + "dc", "lockoffload": module + "lockoffload", "pacer": module + "pacer", "cache": module + "cache", "lab": module + "ci/lab",
}

const module = "github.com/goverbs/goverbs/"

// unused is what a piece of a program is forgiven.
var unused = regexp.MustCompile(`declared and not used: |^# |too many errors`)

// The pieces of Go in the documents compile, one after the other in a function.
func TestSnippetsCompile(t *testing.T) {
	for document, given := range given {
		pieces := lines(t, document, func(line, fence string) bool { return fence == "go" && !strings.HasPrefix(line, "```") })
		require.NotEmpty(t, pieces, document)
		body := given + "\n" + strings.Join(pieces, "\n")
		var imports []string
		for name, path := range packages {
			if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
				imports = append(imports, fmt.Sprintf("import %s %q", name, path))
			}
		}
		slices.Sort(imports)
		dir := t.TempDir()
		path := filepath.Join(dir, "piece.go")
		require.NoError(t, os.WriteFile(path, []byte("package piece\n"+strings.Join(imports, "\n")+"\nfunc piece() {\n"+body+"\n}\n"), 0o644))
		c := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", os.DevNull, path)
		c.Dir = root
		out, _ := c.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			require.Regexp(t, unused, line, "%s: %s", document, out)
		}
	}
}
