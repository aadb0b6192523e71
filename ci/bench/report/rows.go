// Package report makes one page of all results: it needs no network and no script.
package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// suites in the order of the page.
var suites = []string{"native", "verbs", "dc", "lockoffload", "cache", "cluster", "srd", "pacer"}

// hitRates is the table of the cache's hit rates, which has columns of its own.
const hitRates = "cache-hit-rates"

// row is a figure of a suite, or of the hit rates.
type row struct {
	name, kernel, clock, unit string
	ours, baseline, ratio     float64 // baseline and ratio are 0 if there is none
	low, high                 float64 // interval of the ratio, or of ours
	verdict                   string
	target                    string  // as "<= 4", empty if there is none
	limit                     float64 // the target's number, of rows without a baseline
}

// table is a suite's file.
type table struct {
	Name    string
	File    string // that has it
	Heading []string
	Cells   [][]string
	rows    []row
}

// read reads a suite's table: that of this machine's last run in fresh, or the one in kept.
func read(fresh, kept, suite string) (*table, error) {
	for _, dir := range []string{fresh, kept} {
		path := filepath.Join(dir, suite+".csv")
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all, err := csv.NewReader(f).ReadAll()
		f.Close()
		if err == nil && len(all) == 0 {
			err = errors.New("no heading")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		t := &table{Name: suite, File: path, Heading: all[0], Cells: all[1:]}
		if suite != hitRates {
			err = t.parse()
		}
		return t, err
	}
	return nil, nil
}

func (t *table) parse() error {
	for i, cells := range t.Cells {
		var bad error
		cell := func(column string) string {
			if k := slices.Index(t.Heading, column); k >= 0 {
				return cells[k]
			}
			bad = fmt.Errorf("%s: no column %q", t.File, column)
			return ""
		}
		number := func(s string) float64 {
			if s == "" {
				return 0
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil {
				bad = fmt.Errorf("%s: row %d: %w", t.File, i+1, err)
			}
			return v
		}
		r := row{name: cell("benchmark"), kernel: cell("kernel"), clock: cell("clock"), unit: cell("unit"), verdict: cell("verdict"), target: cell("target"),
			ours: number(cell("ours")), baseline: number(cell("baseline")), ratio: number(cell("ratio"))}
		if low, high, ok := strings.Cut(strings.Trim(cell("interval"), "[]"), ","); ok {
			r.low, r.high = number(low), number(high)
		}
		if r.baseline == 0 {
			r.limit = number(strings.TrimLeft(r.target, "<>= "))
		}
		if bad != nil {
			return bad
		}
		t.rows = append(t.rows, r)
	}
	return nil
}

// where names the kernel and clock of a row.
func (r *row) where() string { return fmt.Sprintf("Linux %s, %s clock", r.kernel, r.clock) }

// count counts the verdicts of a table.
func (t *table) count() string {
	n := map[string]int{}
	for _, r := range t.rows {
		n[r.verdict]++
	}
	var out []string
	for _, v := range []string{"met", "missed", "unresolved", "not judged", "set-up broken", "failed"} {
		if n[v] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	if n[""] > 0 {
		out = append(out, fmt.Sprintf("%d without a target", n[""]))
	}
	return strings.Join(out, ", ")
}
