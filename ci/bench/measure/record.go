package measure

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Target is what a benchmark must reach, fixed before the run.
type Target struct {
	AtMost bool    // the figure must be at most Value, otherwise at least
	Value  float64 // of the ratio, or of the plain value if there is no baseline
	Over   bool    // Value is of the difference to the baseline, in the figure's unit
}

// AtMost and AtLeast make targets, AtMostOver and AtLeastOver those of differences.
func AtMost(v float64) *Target      { return &Target{AtMost: true, Value: v} }
func AtLeast(v float64) *Target     { return &Target{Value: v} }
func AtMostOver(v float64) *Target  { return &Target{AtMost: true, Value: v, Over: true} }
func AtLeastOver(v float64) *Target { return &Target{Value: v, Over: true} }

func (t *Target) String() string {
	if t == nil {
		return ""
	}
	text := fmt.Sprintf(">= %g", t.Value)
	if t.AtMost {
		text = fmt.Sprintf("<= %g", t.Value)
	}
	if t.Over {
		text += " over the baseline"
	}
	return text
}

// Verdicts.
const (
	Met        = "met"
	Missed     = "missed"
	Unresolved = "unresolved"
	Broken     = "set-up broken" // the baseline differs from itself
	Failed     = "failed"        // it could not be measured: see Record.Error
	Unjudged   = "not judged"    // the number of pairs has no interval near 95 %
	Reported   = ""              // no target
)

// Resolution of a clock: how far the baseline may be from itself, as a ratio,
// without the set-up being called broken. The instruction clock repeats itself
// so exactly that its intervals have no width, and a run that was scheduled
// another way then leaves 1 out by a few thousandths.
func Resolution(clock string) float64 {
	if strings.HasPrefix(clock, "instructions") {
		return 0.005
	}
	return 0
}

// Record is one figure, as in build/bench/<suite>.json.
type Record struct {
	Name          string  `json:"name"`
	Clock         string  `json:"clock"` // "wall", or "instructions" and what follows it
	Value         float64 `json:"value"` // median
	Unit          string  `json:"unit"`
	Baseline      string  `json:"baseline,omitempty"`
	BaselineValue float64 `json:"baseline_value,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	RatioLow      float64 `json:"ratio_low,omitempty"`
	RatioHigh     float64 `json:"ratio_high,omitempty"`
	AALow         float64 `json:"aa_low,omitempty"`
	AAHigh        float64 `json:"aa_high,omitempty"`
	Over          float64 `json:"over,omitempty"` // difference, of times in ns
	OverLow       float64 `json:"over_low,omitempty"`
	OverHigh      float64 `json:"over_high,omitempty"`
	Level         float64 `json:"level,omitempty"` // of all intervals of this record
	Pairs         int     `json:"pairs,omitempty"`
	Kernel        string  `json:"kernel"`
	Topology      string  `json:"topology"`

	ValueLow  float64 `json:"value_low,omitempty"` // of plain values
	ValueHigh float64 `json:"value_high,omitempty"`
	Target    string  `json:"target,omitempty"`
	Verdict   string  `json:"verdict,omitempty"`
	Failed    int     `json:"failed_passes,omitempty"` // of the benchmark, those that were repeated included
	Error     string  `json:"error,omitempty"`         // of the last one that failed

	Ours      []float64 `json:"ours,omitempty"` // every pass
	BaseFirst []float64 `json:"baseline_first,omitempty"`
	BaseAgain []float64 `json:"baseline_again,omitempty"`
}

// Compare fills in the figures of pairs: ours, and the baseline twice.
func (r *Record) Compare(ours, base, again []float64, t *Target) {
	ratios := Ratios(ours, base)
	aa := MedianInterval(Ratios(again, base))
	in := MedianInterval(ratios)
	r.Value, r.BaselineValue, r.Pairs = Median(ours), Median(base), len(ours)
	r.Ratio, r.RatioLow, r.RatioHigh = Median(ratios), in.Low, in.High
	r.AALow, r.AAHigh, r.Level = aa.Low, aa.High, in.Level
	r.Ours, r.BaseFirst, r.BaseAgain = ours, base, again
	if r.Unit == "ns" {
		over := differences(ours, base)
		o := MedianInterval(over)
		r.Over, r.OverLow, r.OverHigh = Median(over), o.Low, o.High
		if t != nil && t.Over {
			in = o
		}
	}
	r.Target, r.Verdict = t.String(), verdict(in, len(ours), t)
	if res := Resolution(r.Clock); Judges(len(ours)) && (aa.Low > 1+res || aa.High < 1-res) {
		r.Verdict = Broken
	}
}

// Plain fills in the figures of a value without a baseline.
func (r *Record) Plain(values []float64, t *Target) {
	in := MedianInterval(values)
	r.Value, r.ValueLow, r.ValueHigh, r.Pairs = Median(values), in.Low, in.High, len(values)
	r.Ours, r.Level = values, in.Level
	r.Target, r.Verdict = t.String(), verdict(in, len(values), t)
}

// Worst fills in the worst of values without a baseline, by which the target is judged, and their range.
func (r *Record) Worst(values []float64, t *Target) {
	least, most := slices.Min(values), slices.Max(values)
	r.ValueLow, r.ValueHigh, r.Pairs, r.Ours, r.Level = least, most, len(values), values, 1
	r.Target, r.Verdict = t.String(), Met
	if r.Value = most; t != nil && !t.AtMost {
		r.Value = least
	}
	switch {
	case t == nil:
		r.Verdict = Reported
	case t.AtMost && most > t.Value, !t.AtMost && least < t.Value:
		r.Verdict = Missed
	}
}

// Fail says that the figure could not be measured.
func (r *Record) Fail(err error, t *Target) {
	r.Target, r.Verdict, r.Error = t.String(), Failed, err.Error()
}

func verdict(in Interval, n int, t *Target) string {
	switch {
	case t == nil:
		return Reported
	case !Judges(n):
		return Unjudged
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
