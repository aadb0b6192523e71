package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/simrules"
)

// Rules are set, replaced, printed and removed; what is none is refused, and changes nothing.
func TestSim(t *testing.T) {
	root := t.TempDir()
	was := simrules.Folders
	simrules.Folders = []string{filepath.Join(root, "none"), root}
	t.Cleanup(func() { simrules.Folders = was })
	dir := filepath.Join(root, fmt.Sprintf("simhca-fabric-%d", os.Geteuid()))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lab"), nil, 0o600))
	file := filepath.Join(dir, "lab.impair")
	for _, step := range []struct {
		line    string
		status  int
		says    string // in either
		written string
	}{
		{"sim", 2, "the name of a fabric", ""},
		{"sim nosuch", 1, "there are: lab", ""},
		{"sim lab", 0, "no impairments", ""},
		{"sim lab 127.0.0.1", 2, "a rule is FROM TO", ""},
		{"sim lab 127.0.0.1 x cut", 2, `"x" is neither`, ""},
		{"sim lab ::1 * cut", 2, `"::1" is neither`, ""},
		{"sim lab * * loss=101%", 2, `"loss=101%" is no effect`, ""},
		{"sim lab * * delay=1", 2, "is no effect", ""},
		{"sim lab * * delay=1ms loss=0.5%", 0, "* * delay=1ms", "* * delay=1ms loss=0.5%\n"},
		{"sim lab 127.0.0.1 127.0.0.2 cut", 0, "cut", "127.0.0.1 127.0.0.2 cut\n* * delay=1ms loss=0.5%\n"},
		{"sim lab * * rate=10Gbit", 0, "rate", "127.0.0.1 127.0.0.2 cut\n* * rate=10Gbit\n"},
		{"sim lab 127.0.0.1 127.0.0.2", 0, "rate", "* * rate=10Gbit\n"},
		{"sim lab", 0, "* * rate=10Gbit", "* * rate=10Gbit\n"},
		{"sim lab clear", 0, "", ""},
		{"sim lab clear", 0, "", ""},
	} {
		status, stdout, stderr := ctl(t, step.line)
		require.Equal(t, step.status, status, step.line)
		require.Contains(t, stdout+stderr, step.says, step.line)
		text, _ := os.ReadFile(file)
		require.Equal(t, step.written, string(text), step.line)
	}
}
