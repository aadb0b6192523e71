package processes

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/srd"
	"github.com/goverbs/goverbs/ci/bench/verbs"
)

// Rows that need a program are there if it is, and else the output has the reason.
func TestHaving(t *testing.T) {
	var said bytes.Buffer
	rows := []harness.Benchmark{{Name: "a"}, {Name: "b"}}
	require.Equal(t, rows, having(&said, "sh", rows...))
	require.Zero(t, said.Len())
	require.Empty(t, having(&said, "no-such-program", rows...))
	require.Regexp(t, `(?s)a is left out: .*no-such-program.*b is left out: .*no-such-program`, said.String())
}

// Each row is judged by the wall clock, beside a program of others.
func TestRows(t *testing.T) {
	targets := map[string]string{}
	for _, b := range slices.Concat(verbs.Processes(harness.Env{Clock: harness.Wall}), []harness.Benchmark{cache.Processes(), srd.BesideUCX(), srd.BesideRXD()}) {
		require.Equal(t, []string{harness.Wall}, b.Judged, b.Name)
		require.Len(t, b.Sides, 2, b.Name)
		require.Equal(t, b.Sides[1].Name, b.Figures[0].Baseline, b.Name)
		targets[b.Name] = b.Figures[0].Target.String()
	}
	require.Equal(t, map[string]string{
		"processes_read_lat_64B": "<= 1.15", "processes_write_lat_64B": "<= 1.15", "processes_send_lat_64B": "<= 1.15", "processes_atomic_lat": "<= 1.15",
		"processes_write_bw_64KiB": ">= 0.97", "processes_send_ud_rate": ">= 0.97", "processes_cache_get_64B": "<= 0.2",
		"processes_srd_pingpong_64B_vs_ucx": "<= 1.3", "processes_srd_pingpong_64B_vs_rxd": "<= 0.5",
	}, targets)
}
