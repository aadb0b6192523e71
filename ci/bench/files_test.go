package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// The parts of a suite, one for each kernel and clock, become one file; a part
// that was never written is an error beside the records of the others.
func TestMergeOfParts(t *testing.T) {
	dir := t.TempDir()
	var parts []string
	for _, kernel := range []string{"6.1.0-44-amd64", "6.12.90"} {
		r := measure.Record{Name: "x", Unit: "us", Kernel: kernel, Clock: "instructions"}
		r.Compare([]float64{1, 2}, []float64{1, 1}, []float64{1, 1}, nil)
		parts = append(parts, filepath.Join(dir, kernel, "records.json"))
		require.NoError(t, measure.WriteJSON(parts[len(parts)-1], []measure.Record{r}))
	}
	out := filepath.Join(dir, "verbs.json")
	require.NoError(t, mergeFiles(out, parts))
	err := mergeFiles(out, append(parts, filepath.Join(dir, "6.99", "records.json")))
	require.ErrorIs(t, err, os.ErrNotExist)
	all, err := readRecords([]string{out})
	require.NoError(t, err)
	require.Equal(t, "6.1.0-44-amd64", all[0].Kernel)
	require.Equal(t, "6.12.90", all[1].Kernel)
	require.FileExists(t, filepath.Join(dir, "verbs.txt"))
	require.FileExists(t, filepath.Join(dir, "verbs.csv"))
	require.FileExists(t, filepath.Join(dir, "verbs.svg"))
}

// Each figure has one name in its suite, by which it can be chosen.
func TestNamesAreUnique(t *testing.T) {
	for suite, table := range suites {
		for _, clock := range harness.Both {
			seen := make(map[string]bool)
			for _, b := range table(harness.Env{Clock: clock}) {
				for _, f := range b.Figures {
					require.False(t, seen[f.Name], "%s: %s", suite, f.Name)
					require.True(t, b.Named([]string{f.Name}))
					seen[f.Name] = true
				}
			}
			require.NotEmpty(t, seen, suite)
		}
	}
}
