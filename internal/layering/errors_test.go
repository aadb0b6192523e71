package layering

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// meanings are the parts of docs/errors.md that have a row for each sentinel.
var meanings = []string{"Bad argument", "Not executed", "Executed", "Unknown", "Unusable"}

// errorRows returns the sentinels of each row of docs/errors.md, as pkg.ErrName.
func errorRows(t *testing.T, text string) (rows [][]string) {
	t.Helper()
	part := ""
	for line := range strings.Lines(text) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			part = strings.TrimSpace(heading)
		}
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !slices.Contains(meanings, part) {
			continue
		}
		var row []string
		for _, m := range regexp.MustCompile("`(\\w+\\.Err[A-Z]\\w*)`").FindAllStringSubmatch(cells[1], -1) {
			row = append(row, m[1])
		}
		rows = append(rows, row)
	}
	return rows
}

// TestErrorTable: each sentinel that a program can meet is in docs/errors.md, once, and those of one
// name in a row are one value, as the page says.
func TestErrorTable(t *testing.T) {
	a := newAPI(t)
	full := map[string]string{} // pkg.ErrName: the name with the import path
	for _, p := range a.public {
		for _, n := range a.known[p].Scope().Names() {
			if a.sentinel[p+"."+n] != nil {
				short := path.Base(p) + "." + n
				require.Empty(t, full[short], "two packages called %s", path.Base(p))
				full[short] = p + "." + n
			}
		}
	}
	require.Greater(t, len(full), 60)
	text, err := os.ReadFile("../../docs/errors.md")
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, row := range errorRows(t, string(text)) {
		values := map[string]string{} // by the name without package
		for _, short := range row {
			require.NotEmpty(t, full[short], "no package has %s", short)
			require.False(t, listed[short], "%s is listed twice", short)
			listed[short] = true
			_, name, _ := strings.Cut(short, ".")
			value := a.origin(full[short])
			if values[name] != "" {
				require.Equal(t, values[name], value, "%s is another value than that of the same name beside it", short)
			}
			values[name] = value
		}
	}
	for _, short := range slices.Sorted(maps.Keys(full)) {
		require.True(t, listed[short], "docs/errors.md does not say what %s means", short)
	}
}
