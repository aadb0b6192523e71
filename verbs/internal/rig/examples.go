//go:build linux

package rig

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// Prints is what the examples of files say that they print, by name. The addresses
// of the lab are in them: elsewhere the test is skipped.
func Prints(t *testing.T, files ...string) map[string]string {
	t.Helper()
	if !lab.In() {
		t.Skip("for the lab: its addresses are in the examples")
	}
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

// Output is what f prints.
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
