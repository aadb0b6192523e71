package srd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// tailRecords are a run's records of one clock: ours is 1 ms at most, the baselines are
// slower.
func tailRecords(kernel, clock string) (all []measure.Record) {
	for _, f := range tails().Figures {
		r := measure.Record{Name: f.Name, Unit: f.Unit, Kernel: kernel, Clock: clock, Baseline: f.Baseline}
		base := 60000.0
		if f.Baseline == tailQuick {
			base = 8000
		}
		r.Compare([]float64{1000 - float64(f.Value)}, []float64{base}, []float64{base}, f.Target)
		all = append(all, r)
	}
	return all
}

// Each kernel and clock has a plot; where a figure failed there is none, and the run's other
// files are written all the same.
func TestPlotTails(t *testing.T) {
	base := filepath.Join(t.TempDir(), "srd")
	all := append(tailRecords("6.1.0-44-amd64", "instructions"), tailRecords("6.12.90", "wall")...)
	half := tailRecords("6.12.90", "instructions")
	half[3].Value = 0
	require.NoError(t, PlotTails(base, append(all, half...)))
	drawn, err := filepath.Glob(base + "-tails-*")
	require.NoError(t, err)
	require.Equal(t, []string{base + "-tails-6.1-instructions.svg", base + "-tails-6.12-wall.svg"}, drawn)
	b, err := os.ReadFile(drawn[0])
	require.NoError(t, err)
	require.Contains(t, string(b), "Linux 6.1, instructions")
}

// A line has the side's own values, and each quantile in its place.
func TestTailLines(t *testing.T) {
	named := make(map[string]*measure.Record)
	all := tailRecords("6.1", "wall")
	for i := range all {
		named[all[i].Name] = &all[i]
	}
	lines, ok := tailLines(named)
	require.True(t, ok)
	require.Len(t, lines, 9)
	require.Equal(t, "srd: 99 %", lines[1].name)
	require.InDelta(t, 0.999, lines[1].points[0].Y, 1e-9, "the second value of a pass")
	require.InDelta(t, 0.993, lines[1].points[2].Y, 1e-9, "the eighth one")
	require.InDelta(t, 60, lines[4].points[1].Y, 1e-9)
	require.InDelta(t, 8, lines[7].points[1].Y, 1e-9)
	delete(named, "loss5_p999")
	_, ok = tailLines(named)
	require.False(t, ok)
}
