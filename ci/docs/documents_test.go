// Package docs has the tests of the documents: each command in them is executed,
// and each piece of Go compiles.
package docs

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's, from here.
const root = "../.."

// documents have commands, as paragraphs that are indented.
var documents = []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "ci/README.md", "docs/addresses.md", "docs/background.md", "docs/benchmarks.md", "docs/benchmarks/README.md", "docs/cache.md", "docs/features.md", "docs/hardware.md", "docs/protocol/cache.md", "docs/protocol/dc.md", "docs/protocol/lockoffload.md", "docs/protocol/srd.md", "docs/quirks.md", "docs/simhca.md", "docs/srd.md"}

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

// A newcomer reads the first page in three minutes.
func TestFirstPageIsShort(t *testing.T) {
	n := len(lines(t, "README.md", func(string, string) bool { return true }))
	require.LessOrEqual(t, n, 150, "lines of README.md")
}
