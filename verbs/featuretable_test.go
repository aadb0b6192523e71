//go:build linux

package verbs_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
)

// featureRow is a row of the table in docs/features.md.
type featureRow struct {
	calls, tests []string
	on           map[string]string // by kernel: works, refused
	simulated    string            // by libmlx5 and libefa: runs, refused, or nothing; then what else was looked at
}

var featureTable = sync.OnceValues(func() (map[string]featureRow, error) {
	b, err := os.ReadFile("../docs/features.md")
	if err != nil {
		return nil, err
	}
	rows := make(map[string]featureRow)
	code := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (out []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
		return out
	}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || strings.Contains(line, "---") || strings.Contains(line, "| feature |") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[1]] = featureRow{calls: names(cells[2]), tests: names(cells[3]), on: map[string]string{"6.1": cells[4], "6.12": cells[5]}, simulated: cells[6]}
	}
	return rows, nil
})

// TestFeatureTable: the calls and tests that the table names exist. What it says
// of a kernel is checked by refused, in the tests on the device.
func TestFeatureTable(t *testing.T) {
	rows, err := featureTable()
	require.NoError(t, err)
	require.Greater(t, len(rows), 40)
	has := names(t)
	for name, r := range rows {
		for word := range strings.FieldsFuncSeq(r.simulated, func(c rune) bool { return strings.ContainsRune("; ,", c) }) {
			require.Contains(t, []string{"runs", "refused", "calls", "layout"}, word, name)
		}
		require.NotEmpty(t, r.calls, name)
		require.NotEmpty(t, r.tests, name)
		for _, c := range r.calls {
			require.True(t, has[c], "%s: there is no %s", name, c)
		}
		for _, test := range r.tests {
			require.True(t, strings.HasPrefix(test, "Test") && has[test], "%s: there is no %s", name, test)
		}
		for kernel, state := range r.on {
			require.Contains(t, []string{"works", "refused"}, state, "%s on %s", name, kernel)
		}
	}
	require.False(t, has["Batch.Nothing"])
}

// names are those of this package and its tests, and those of the packages in it, as
// rdmacm.F. All tests are without a package.
func names(t *testing.T) map[string]bool {
	has := make(map[string]bool)
	for _, folder := range []string{".", "rdmacm", "stream", "experimental"} {
		code, tests, err := astnames.In(folder)
		require.NoError(t, err)
		for name := range code {
			if folder != "." {
				name = folder + "." + name
			}
			has[name] = true
		}
		maps.Copy(has, tests)
	}
	return has
}
