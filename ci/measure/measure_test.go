package measure

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, Median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, Median([]float64{4, 1, 2, 3}))
	x := []float64{3, 1, 2}
	Median(x)
	require.Equal(t, []float64{3, 1, 2}, x, "the sample stays as it was")
}

// The interval holds the true median about 95 times of 100, for skewed data
// too.
func TestIntervalCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const trials = 100
	for _, n := range []int{5, 9, 15, 31} {
		hits := 0
		for range trials {
			x := make([]float64, n)
			for i := range x {
				x[i] = math.Exp(0.2 * r.NormFloat64()) // median 1
			}
			in := MedianInterval(x)
			if in.Low <= 1 && 1 <= in.High {
				hits++
			}
		}
		require.Greater(t, hits, trials*85/100, "n=%d", n)
	}
}

func TestIntervalIsRepeatable(t *testing.T) {
	x := []float64{1, 1.1, 0.9, 1.05, 0.95, 1.2, 0.8}
	require.Equal(t, MedianInterval(x), MedianInterval(x))
	same := []float64{1, 1, 1, 1, 1, 1, 1}
	require.Equal(t, Interval{1, 1}, MedianInterval(same))
}

func TestVerdicts(t *testing.T) {
	base := []float64{100, 101, 99, 100, 102, 98, 100}
	again := []float64{101, 100, 100, 99, 100, 99, 101}
	scaled := func(f float64) []float64 {
		out := make([]float64, len(base))
		for i := range base {
			out[i] = base[i] * f
		}
		return out
	}
	for _, c := range []struct {
		name   string
		ours   []float64
		again  []float64
		clock  string
		target *Target
		want   string
	}{
		{"met", scaled(1.02), again, "wall", AtMost(1.05), Met},
		{"missed", scaled(1.2), again, "wall", AtMost(1.05), Missed},
		{"straddling", []float64{100, 120, 99, 118, 102, 110, 90}, again, "wall", AtMost(1.05), Unresolved},
		{"at least", scaled(0.98), again, "wall", AtLeast(0.97), Met},
		{"at least, missed", scaled(0.5), again, "wall", AtLeast(0.97), Missed},
		{"baseline differs from itself", scaled(1), scaled(1.1), "wall", AtMost(1.05), Broken},
		{"by less than the clock resolves", scaled(1), scaled(1.002), "instructions", AtMost(1.05), Met},
		{"by more", scaled(1), scaled(1.02), "instructions", AtMost(1.05), Broken},
		{"no target", scaled(1), again, "wall", nil, Reported},
	} {
		r := Record{Clock: c.clock}
		r.Compare(c.ours, base, c.again, c.target)
		require.Equal(t, c.want, r.Verdict, c.name)
	}
	var r Record
	r.Plain([]float64{5, 5.1, 5.2, 4.9, 5, 5.3, 5}, AtMost(6))
	require.Equal(t, Met, r.Verdict)
	require.Zero(t, r.Ratio)
}

func TestNumberOfPairs(t *testing.T) {
	steady := []float64{0.999, 1, 1.001, 1, 1.0005}
	wild := []float64{0.6, 1.4, 0.9, 1.2, 1.8, 0.7}
	require.Equal(t, 5, Pairs(steady, 0.01, 5, 41))
	require.Equal(t, 41, Pairs(wild, 0.02, 5, 41), "more than can be had")
	require.Greater(t, Pairs(wild, 0.2, 5, 1000), Pairs(wild, 0.4, 5, 1000))
}

func TestOutputs(t *testing.T) {
	rec := Record{Name: "read_lat_64B", Clock: "instructions", Unit: "us", Baseline: "perftest", Kernel: "6.1", Topology: "wire"}
	rec.Compare([]float64{10, 11, 12}, []float64{10, 10, 10}, []float64{10, 10, 10}, AtMost(1.05))
	path := filepath.Join(t.TempDir(), "bench", "verbs.json")
	require.NoError(t, WriteJSON(path, []Record{rec}))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var back []map[string]any
	require.NoError(t, json.Unmarshal(b, &back))
	for _, field := range strings.Fields("name clock value unit baseline baseline_value ratio ratio_low ratio_high aa_low aa_high pairs kernel topology") {
		require.Contains(t, back[0], field)
	}
	var text bytes.Buffer
	WriteTable(&text, []Record{rec})
	require.Contains(t, text.String(), "unresolved")
	text.Reset()
	WriteGoBench(&text, []Record{rec})
	require.Equal(t, "Benchmark/read_lat_64B/instructions 1 10 us", strings.Split(text.String(), "\n")[0])
}
