// Package docs has the tests of the documents: each command in them is executed,
// and each piece of Go compiles.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's, from here.
const root = "../.."

// documents have commands, as paragraphs that are indented.
var documents = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "ci/README.md", "docs/addresses.md", "docs/background.md", "docs/benchmarks.md", "docs/benchmarks/README.md", "docs/cache.md", "docs/cluster.md", "docs/devices.md", "docs/errors.md", "docs/features.md", "docs/glossary.md", "docs/hardware.md", "docs/integrations.md", "docs/kubernetes.md", "docs/nic.md", "docs/testing.md", "docs/tuning.md", "docs/protocol/cache.md", "docs/protocol/dc.md", "docs/protocol/lockoffload.md", "docs/protocol/srd.md", "docs/quirks.md", "docs/simhca.md", "docs/srd.md", "docs/versions.md"}

// commands are those of a document, without their comments.
func commands(t *testing.T, document string) (found []string) {
	for _, line := range lines(t, document, func(line string, fence string) bool {
		return fence == "" && strings.HasPrefix(line, "    ")
	}) {
		line, _, _ = strings.Cut(line, "  # ")
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return found
}

// lines are those of a document that are wanted; fence is what follows the three
// quotes of a block that the line is in.
func lines(t *testing.T, document string, want func(line, fence string) bool) (found []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, document))
	require.NoError(t, err)
	fence := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		mark, is := strings.CutPrefix(line, "```")
		switch {
		case is && fence == "":
			fence = mark
			if fence == "" {
				fence = "text"
			}
		case is:
			fence = ""
		}
		if want(line, fence) {
			found = append(found, line)
		}
	}
	return found
}

// A command of the documents is executed, or it is said why not; and nothing is
// executed that is in no document any more.
func TestCommandsAreKnown(t *testing.T) {
	known := maps.Clone(elsewhere)
	for _, a := range acts {
		for _, c := range a.commands {
			known[c] = "executed"
		}
	}
	var found []string
	for _, d := range documents {
		for _, c := range commands(t, d) {
			require.Contains(t, known, c, "%s: no test executes it (ci/docs)", d)
			found = append(found, c)
		}
	}
	require.Greater(t, len(found), 20)
	for c := range known {
		require.True(t, slices.Contains(found, c), "%s: in no document", c)
	}
}

// A newcomer reads the first page in three minutes, and each of the others in one sitting.
func TestPagesAreShort(t *testing.T) {
	for document, most := range map[string]int{"README.md": 150, "ARCHITECTURE.md": 250, "docs/benchmarks.md": 250, "docs/glossary.md": 60} {
		n := len(lines(t, document, func(string, string) bool { return true }))
		require.LessOrEqual(t, n, most, "lines of %s", document)
	}
}

// Each document is in the list above, and links to files that are there.
func TestDocumentsAreKnown(t *testing.T) {
	var all []string
	for _, pattern := range []string{"*.md", "ci/*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, n := range names {
			n, err := filepath.Rel(root, n)
			require.NoError(t, err)
			all = append(all, n)
		}
	}
	require.ElementsMatch(t, documents, all)
	for _, d := range documents {
		for _, l := range lines(t, d, func(_, fence string) bool { return fence == "" }) {
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				if to, _, _ := strings.Cut(m[1], "#"); to != "" && !strings.Contains(to, "://") {
					_, err := os.Stat(filepath.Join(root, filepath.Dir(d), to))
					require.NoError(t, err, "%s: %s", d, m[0])
				}
			}
		}
	}
}

// link is a link of a document.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// A package's comment has at most 120 lines: what it is for, an example, guarantees and costs.
func TestPackageCommentsAreShort(t *testing.T) {
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.Name() != "doc.go":
			return nil
		}
		b, err := os.ReadFile(path)
		comment, _, _ := strings.Cut(string(b), "\npackage ")
		require.LessOrEqual(t, strings.Count(comment, "\n")+1, 120, "lines of %s", path)
		found++
		return err
	}))
	require.Greater(t, found, 20)
}
