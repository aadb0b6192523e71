// Package exampletest checks what examples print that need a device: "go test" itself runs an
// example with an Output comment everywhere.
package exampletest

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prints returns what the examples of files say that they print, by name, in a comment that begins
// with "Prints:".
func Prints(t *testing.T, files ...string) map[string]string {
	t.Helper()
	prints := map[string]string{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, f := range regexp.MustCompile(`(?ms)^func (Example\w*)\(\) \{.*?\n\t// Prints: (.*?)\n\}`).FindAllStringSubmatch(string(source), -1) {
			prints[f[1]] = strings.ReplaceAll(f[2], "\n\t// ", "\n") + "\n"
		}
	}
	return prints
}

// Output calls f, and returns what it prints.
func Output(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f()
	require.NoError(t, w.Close())
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(got)
}
