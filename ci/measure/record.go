package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Target is what a benchmark must reach, fixed before the run.
type Target struct {
	AtMost bool    // the figure must be at most Value, otherwise at least
	Value  float64 // of the ratio, or of the plain value if there is no baseline
}

// AtMost and AtLeast make targets.
func AtMost(v float64) *Target  { return &Target{true, v} }
func AtLeast(v float64) *Target { return &Target{false, v} }

func (t *Target) String() string {
	if t == nil {
		return ""
	}
	if t.AtMost {
		return fmt.Sprintf("<= %g", t.Value)
	}
	return fmt.Sprintf(">= %g", t.Value)
}

// Verdicts.
const (
	Met        = "met"
	Missed     = "missed"
	Unresolved = "unresolved"
	Broken     = "set-up broken" // the baseline differs from itself
	Reported   = ""              // no target
)

// Resolution of a clock: how far the baseline may be from itself, as a ratio,
// without the set-up being called broken. The instruction clock repeats itself
// so exactly that its intervals have no width, and a run that was scheduled
// another way then leaves 1 out by a few thousandths.
func Resolution(clock string) float64 {
	if clock == "instructions" {
		return 0.005
	}
	return 0
}

// Record is one figure, as in build/bench/<suite>.json.
type Record struct {
	Name          string  `json:"name"`
	Clock         string  `json:"clock"` // "wall" or "instructions"
	Value         float64 `json:"value"` // median
	Unit          string  `json:"unit"`
	Baseline      string  `json:"baseline,omitempty"`
	BaselineValue float64 `json:"baseline_value,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	RatioLow      float64 `json:"ratio_low,omitempty"`
	RatioHigh     float64 `json:"ratio_high,omitempty"`
	AALow         float64 `json:"aa_low,omitempty"`
	AAHigh        float64 `json:"aa_high,omitempty"`
	Pairs         int     `json:"pairs,omitempty"`
	Kernel        string  `json:"kernel"`
	Topology      string  `json:"topology"`

	ValueLow  float64 `json:"value_low,omitempty"` // of plain values
	ValueHigh float64 `json:"value_high,omitempty"`
	Target    string  `json:"target,omitempty"`
	Verdict   string  `json:"verdict,omitempty"`
	Failed    int     `json:"failed_passes,omitempty"`

	Ours      []float64 `json:"ours,omitempty"` // every pass
	BaseFirst []float64 `json:"baseline_first,omitempty"`
	BaseAgain []float64 `json:"baseline_again,omitempty"`
}

// Compare fills in the figures of pairs: ours, and the baseline before and
// after it (or in another fixed order).
func (r *Record) Compare(ours, base, again []float64, t *Target) {
	ratios := Ratios(ours, base)
	aa := MedianInterval(Ratios(again, base))
	in := MedianInterval(ratios)
	r.Value, r.BaselineValue, r.Pairs = Median(ours), Median(base), len(ours)
	r.Ratio, r.RatioLow, r.RatioHigh = Median(ratios), in.Low, in.High
	r.AALow, r.AAHigh = aa.Low, aa.High
	r.Ours, r.BaseFirst, r.BaseAgain = ours, base, again
	r.Target, r.Verdict = t.String(), verdict(in, t)
	if res := Resolution(r.Clock); aa.Low > 1+res || aa.High < 1-res {
		r.Verdict = Broken
	}
}

// Plain fills in the figures of a value without a baseline.
func (r *Record) Plain(values []float64, t *Target) {
	in := MedianInterval(values)
	r.Value, r.ValueLow, r.ValueHigh, r.Pairs = Median(values), in.Low, in.High, len(values)
	r.Ours = values
	r.Target, r.Verdict = t.String(), verdict(in, t)
}

func verdict(in Interval, t *Target) string {
	switch {
	case t == nil:
		return Reported
	case t.AtMost && in.High <= t.Value, !t.AtMost && in.Low >= t.Value:
		return Met
	case t.AtMost && in.Low > t.Value, !t.AtMost && in.High < t.Value:
		return Missed
	}
	return Unresolved
}

// WriteJSON writes the records in one step, so that a reader never sees half.
func WriteJSON(path string, records []Record) error {
	b, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// WriteTable prints the records for people.
func WriteTable(w io.Writer, records []Record) {
	fmt.Fprintf(w, "%-24s %-12s %12s %12s %-6s %7s %17s %17s %5s  %-8s %s\n", "benchmark", "clock", "ours", "baseline", "unit",
		"ratio", "95 % interval", "A/A interval", "pairs", "target", "verdict")
	for _, r := range records {
		if r.Ratio == 0 {
			fmt.Fprintf(w, "%-24s %-12s %12.4g %12s %-6s %7s [%7.4g, %7.4g] %17s %5d  %-8s %s\n", r.Name, r.Clock, r.Value, "", r.Unit,
				"", r.ValueLow, r.ValueHigh, "", r.Pairs, r.Target, r.Verdict)
			continue
		}
		fmt.Fprintf(w, "%-24s %-12s %12.4g %12.4g %-6s %7.3f [%7.3f, %7.3f] [%7.3f, %7.3f] %5d  %-8s %s\n", r.Name, r.Clock, r.Value,
			r.BaselineValue, r.Unit, r.Ratio, r.RatioLow, r.RatioHigh, r.AALow, r.AAHigh, r.Pairs, r.Target, r.Verdict)
	}
}

// WriteGoBench prints every pass in the format of go test -bench, for
// benchstat.
func WriteGoBench(w io.Writer, records []Record) {
	for _, r := range records {
		for _, v := range r.Ours {
			fmt.Fprintf(w, "Benchmark/%s/%s 1 %g %s\n", r.Name, r.Clock, v, r.Unit)
		}
	}
}
