package measure

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, Median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, Median([]float64{4, 1, 2, 3}))
	x := []float64{3, 1, 2}
	Median(x)
	require.Equal(t, []float64{3, 1, 2}, x, "the sample stays as it was")
}

func TestVerdicts(t *testing.T) {
	base := []float64{100, 101, 99, 100, 102, 98}
	again := []float64{101, 100, 100, 99, 100, 99}
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
		{"straddling", []float64{100, 120, 99, 118, 102, 110}, again, "wall", AtMost(1.05), Unresolved},
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
	r.Plain([]float64{5, 5.1, 5.2, 4.9, 5, 5.3}, AtMost(6))
	require.Equal(t, Met, r.Verdict)
	require.Zero(t, r.Ratio)
	require.InDelta(t, 0.969, r.Level, 0.001)
}

// A number of pairs that was given by hand may have no interval near 95 %: then
// the record says which level it has, and judges nothing.
func TestTargetsAreJudgedAtTheirLevelOnly(t *testing.T) {
	for n := 1; n < 21; n++ {
		var r Record
		one := slices.Repeat([]float64{1}, n)
		r.Compare(one, one, one, AtMost(2))
		var other Record
		other.Compare(one, one, slices.Repeat([]float64{2}, n), AtMost(2))
		require.Equal(t, Judges(n), other.Verdict == Broken, "%d pairs", n)
		require.Equal(t, MedianInterval(one).Level, r.Level, "%d pairs", n)
		if Judges(n) {
			require.Equal(t, Met, r.Verdict, "%d pairs", n)
		} else {
			require.Equal(t, Unjudged, r.Verdict, "%d pairs", n)
		}
	}
}

func TestNumberOfPairs(t *testing.T) {
	steady := []float64{0.999, 1, 1.001, 1, 1.0005}
	wild := []float64{0.6, 1.4, 0.9, 1.2, 1.8, 0.7}
	require.Equal(t, 6, Pairs(steady, 0.01, 41))
	require.Equal(t, 42, Pairs(wild, 0.02, 41), "more than can be had")
	require.Greater(t, Pairs(wild, 0.2, 1000), Pairs(wild, 0.4, 1000))
	require.True(t, Judges(Pairs(wild, 0.3, 1000)))
}

func record() Record {
	rec := Record{Name: "read_lat_64B", Clock: "instructions", Unit: "us", Baseline: "perftest", Kernel: "6.1.0-44-amd64", Topology: "wire"}
	rec.Compare([]float64{10, 11, 12}, []float64{10, 10, 11}, []float64{10, 10, 10}, AtMost(1.05))
	return rec
}

func TestJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "verbs.json")
	require.NoError(t, WriteJSON(path, []Record{record()}))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	var back []map[string]any
	require.NoError(t, json.Unmarshal(b, &back))
	for _, field := range strings.Fields("name clock value unit baseline baseline_value ratio ratio_low ratio_high aa_low aa_high level pairs kernel topology") {
		require.Contains(t, back[0], field)
	}
}

// A baseline that transfers nothing in one pass does not cost a suite its records.
func TestBaselineOfNothing(t *testing.T) {
	r := Record{Name: "goodput", Unit: "MB/s"}
	r.Compare([]float64{5, 5, 5, 5, 5, 0}, []float64{1, 1, 0, 1, 1, 0}, []float64{1, 0, 1, 1, 1, 0}, AtLeast(4.5))
	require.Equal(t, []float64{5, 1, highest}, []float64{r.Ratio, r.RatioLow, r.RatioHigh})
	require.NoError(t, WriteJSON(filepath.Join(t.TempDir(), "pacer.json"), []Record{r}))
}

// The table says what was judged and at which level, and what failed and why.
func TestTable(t *testing.T) {
	failed := Record{Name: "send_lat", Kernel: "6.12.90", Failed: 2}
	failed.Fail(errors.New("no result\nwithin 30s"), AtMost(1))
	var text bytes.Buffer
	WriteMarkdown(&text, []Record{record()})
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[2], "| `"+record().Name+"` | ")
	require.Equal(t, strings.Count(lines[0], "|"), strings.Count(lines[1], "|"))
	require.Equal(t, strings.Count(lines[0], "|"), strings.Count(lines[2], "|"))
	text.Reset()
	WriteCSV(&text, []Record{record(), failed})
	rows, err := csv.NewReader(&text).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, []string{"benchmark", "kernel", "clock"}, rows[0][:3])
	require.Equal(t, record().Name, rows[1][0])
	require.Equal(t, "failed: no result within 30s", rows[2][len(rows[2])-1])
	text.Reset()
	WriteTable(&text, []Record{record(), failed})
	lines = strings.Split(text.String(), "\n")
	require.Regexp(t, `^read_lat_64B +6\.1 .* 1\.091 .* 75\.0 % .* not judged`, lines[1])
	require.Regexp(t, `^send_lat +6\.12 .* 2 +<= 1 +failed: no result within 30s`, lines[2])
}

// benchstat gets both sides: what its own reader makes of the file.
func TestPassesForBenchstat(t *testing.T) {
	other := record()
	other.Kernel = "6.12.90"
	var text bytes.Buffer
	WriteGoBench(&text, []Record{record(), other})
	got := make(map[string][]float64)
	r := benchfmt.NewReader(&text, "verbs.txt")
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			base, parts := rec.Name.Parts()
			require.Equal(t, "_read_lat_64B", string(base))
			require.Len(t, parts, 1)
			v, ok := rec.Value("us")
			require.True(t, ok)
			key := Series(rec.GetConfig("kernel")) + " " + rec.GetConfig("clock") + string(parts[0])
			got[key] = append(got[key], v)
		case *benchfmt.UnitMetadata:
			require.Equal(t, "lower", rec.Value)
		default:
			require.Fail(t, "refused", "%v", rec)
		}
	}
	require.NoError(t, r.Err())
	require.Equal(t, map[string][]float64{
		"6.1 instructions/side=ours": {10, 11, 12}, "6.1 instructions/side=baseline": {10, 10, 11},
		"6.12 instructions/side=ours": {10, 11, 12}, "6.12 instructions/side=baseline": {10, 10, 11},
	}, got)
}

// The worst of all values is judged.
func TestWorst(t *testing.T) {
	for _, c := range []struct {
		target  *Target
		value   float64
		verdict string
	}{{AtMost(3), 3, Met}, {AtMost(2.9), 3, Missed}, {AtLeast(1), 1, Met}, {AtLeast(1.1), 1, Missed}, {nil, 3, Reported}} {
		var r Record
		r.Worst([]float64{2, 3, 1}, c.target)
		require.Equal(t, Record{Value: c.value, ValueLow: 1, ValueHigh: 3, Level: 1, Pairs: 3, Ours: []float64{2, 3, 1}, Target: c.target.String(), Verdict: c.verdict}, r)
	}
}

// Times have differences, on which targets may be judged, with an interval that leaves out 0 when
// that of the ratio leaves out 1.
func TestDifferences(t *testing.T) {
	base := []float64{100, 101, 99, 100, 102, 98}
	ours := []float64{150, 150, 150, 151, 150, 150}
	for target, want := range map[*Target]string{AtMostOver(60): Met, AtMostOver(40): Missed, AtMostOver(50): Unresolved, AtLeastOver(45): Met, AtMost(1.6): Met} {
		r := Record{Name: "x", Unit: "ns"}
		r.Compare(ours, base, base, target)
		require.Equal(t, want, r.Verdict, "%v", target)
		require.Equal(t, []float64{50.5, 48, 52}, []float64{r.Over, r.OverLow, r.OverHigh})
	}
	r, rate := Record{Name: "x", Unit: "ns"}, Record{Name: "y", Unit: "op/s"}
	r.Compare(ours, base, base, AtMostOver(60))
	rate.Compare(ours, base, base, nil)
	var b bytes.Buffer
	WriteCSV(&b, []Record{r, rate})
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"difference", "interval of difference"}, rows[0][14:])
	require.Equal(t, []string{"<= 60 over the baseline", Met, "+50.5", "[+48.0, +52.0]"}, rows[1][12:])
	require.Equal(t, []string{"", "", "", ""}, rows[2][12:])
	b.Reset()
	WriteCSV(&b, []Record{rate})
	require.NotContains(t, b.String(), "difference")
}
