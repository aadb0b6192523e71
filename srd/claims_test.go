package srd

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/declared"
)

// Each claim of the table in doc.go has a place in the code and a test, which are there.
func TestClaims(t *testing.T) {
	has, tests := make(map[string]bool), make(map[string]bool)
	for _, folder := range []string{".", "internal/engine", "internal/offload", "internal/wire"} {
		code, itsTests, err := declared.In(folder)
		require.NoError(t, err)
		for name := range code {
			has[name], has[name[strings.LastIndexByte(name, '.')+1:]] = true, true // methods without their type, too
		}
		maps.Copy(tests, itsTests)
	}
	require.False(t, has["Nothing"])
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "# The claims of the seed")
	require.True(t, ok)
	_, table, _ = strings.Cut(table, "//\tclaim")
	lines := strings.Split(table, "\n")
	where, test := strings.Index("//\tclaim"+lines[0], "where"), strings.Index("//\tclaim"+lines[0], "test")
	claims := make(map[int]bool)
	places, shown := 0, 0
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "//\t") {
			break
		}
		line += strings.Repeat(" ", test)
		for _, n := range regexp.MustCompile(`\d+`).FindAllString(line[:len("//\tclaim  ")], -1) {
			claim, err := strconv.Atoi(n)
			require.NoError(t, err)
			claims[claim] = true
		}
		for _, name := range regexp.MustCompile(`\w+[.\w]*\b:?`).FindAllString(line[where:test], -1) {
			if strings.HasSuffix(name, ":") || slices.Contains([]string{"EFA", "not", "here", "software", "1"}, name) {
				continue // which machine, and words
			}
			require.True(t, has[strings.TrimPrefix(name, "wire.")], "there is no %s: %s", name, line)
			places++
		}
		for _, name := range strings.Fields(strings.ReplaceAll(line[test:], ",", " ")) {
			require.True(t, tests[name], "there is no %s: %s", name, line)
			shown++
		}
	}
	require.Len(t, claims, 15)
	require.Greater(t, places, 15)
	require.Greater(t, shown, 15)
}
