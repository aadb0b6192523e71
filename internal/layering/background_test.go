package layering

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
)

// links are those of a document to Go files: the name that the file declares, and the file.
var links = regexp.MustCompile(`\[([\w.]+)\]\(\.\./([\w/]+\.go)\)`)

// TestBackground checks the tables of docs/background.md: each file is there and declares the name
// that its link has, and each row ends with a test.
func TestBackground(t *testing.T) {
	text, err := os.ReadFile("../../docs/background.md")
	require.NoError(t, err)
	rows, found := 0, 0
	code, tests := map[string]map[string]bool{}, map[string]map[string]bool{} // by folder
	for line := range strings.Lines(string(text)) {
		all := links.FindAllStringSubmatch(line, -1)
		require.Len(t, all, strings.Count(line, ".go)"), "a link that is not checked: %s", line)
		if len(all) == 0 {
			continue
		}
		rows++
		last := all[len(all)-1]
		require.True(t, strings.HasPrefix(last[1], "Test") && strings.HasSuffix(last[2], "_test.go"), "no test: %s", line)
		for _, m := range all {
			name, file := m[1], m[2]
			source, err := os.ReadFile(filepath.Join("../..", file))
			require.NoError(t, err, "%s of %s", name, file)
			folder := path.Dir(file)
			if code[folder] == nil {
				code[folder], tests[folder], err = astnames.In(filepath.Join("../..", folder))
				require.NoError(t, err)
			}
			has := code[folder]
			if strings.HasSuffix(file, "_test.go") {
				has = tests[folder]
			}
			require.True(t, has[name], "%s has no %s", folder, name)
			short := name[strings.LastIndexByte(name, '.')+1:]
			require.Regexp(t, `\b`+short+`\b`, string(source), "%s is not in %s", name, file)
			found++
		}
	}
	require.Greater(t, rows, 90)
	require.Greater(t, found, 190)
}
