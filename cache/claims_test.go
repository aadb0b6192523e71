package cache

import (
	"maps"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/declared"
)

// The tables in doc.go name what exists, and tests that do.
func TestClaims(t *testing.T) {
	has, tests := map[string]bool{}, map[string]bool{}
	for _, folder := range []string{".", "server", "internal/wire", "internal/table", "internal/store", "internal/mirror", "internal/rendezvous", "internal/greet", "internal/fence", "internal/driver/link", "../internal/house"} {
		code, itsTests, err := declared.In(folder)
		require.NoError(t, err)
		for name := range code {
			has[path.Base(folder)+"."+name[strings.LastIndexByte(name, '.')+1:]] = true // methods without their type, too
			has[name] = has[name] || strings.Contains(name, ".")                        // T.Method
		}
		maps.Copy(tests, itsTests)
	}
	require.False(t, has["server.Nothing"])
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "# The claim of")
	require.True(t, ok)
	rows := regexp.MustCompile(`(?m)^//\t(.+?)  +([\w.]+)  +(Test\w+)$`).FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 7+59)
	for _, m := range rows {
		require.True(t, has[m[2]], "%s: there is no %s", m[1], m[2])
		require.True(t, tests[m[3]], "%s: there is no %s", m[1], m[3])
	}
}
