package measure

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable prints the records for people.
func WriteTable(w io.Writer, records []Record) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range table(records) {
		fmt.Fprintln(t, strings.Join(row, "\t")+"\t")
	}
	t.Flush()
}

// WriteMarkdown prints the same for documents.
func WriteMarkdown(w io.Writer, records []Record) {
	for i, row := range table(records) {
		if row[0] = strings.TrimSpace(row[0]); i > 0 {
			row[0] = "`" + row[0] + "`"
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("| --- ", len(row))+"|")
		}
	}
}

// WriteCSV writes the records as comma-separated values, with the columns of
// WriteMarkdown: the format of docs/benchmarks.
func WriteCSV(w io.Writer, records []Record) {
	rows := table(records)
	for _, row := range rows {
		row[0] = strings.TrimSpace(row[0])
	}
	csv.NewWriter(w).WriteAll(rows)
}

// table has a heading and a row for each record. Differences have columns if there is one.
func table(records []Record) [][]string {
	out := [][]string{strings.Split("benchmark,kernel,clock,ours,baseline,unit,ratio,interval,level,A/A interval,pairs,failed,target,verdict", ",")}
	over := slices.ContainsFunc(records, func(r Record) bool { return r.Over != 0 })
	if over {
		out[0] = append(out[0], "difference", "interval of difference")
	}
	for _, r := range records {
		cells := []string{r.Name, Series(r.Kernel), r.Clock, fmt.Sprintf("%.4g", r.Value), "", r.Unit, "",
			fmt.Sprintf("[%.4g, %.4g]", r.ValueLow, r.ValueHigh), fmt.Sprintf("%.1f %%", 100*r.Level), "", fmt.Sprint(r.Pairs), "", r.Target, r.Verdict}
		if r.Ratio != 0 {
			cells[4], cells[6] = fmt.Sprintf("%.4g", r.BaselineValue), fmt.Sprintf("%.3f", r.Ratio)
			cells[7], cells[9] = fmt.Sprintf("[%.3f, %.3f]", r.RatioLow, r.RatioHigh), fmt.Sprintf("[%.3f, %.3f]", r.AALow, r.AAHigh)
		}
		if r.Failed > 0 {
			cells[11] = fmt.Sprint(r.Failed)
		}
		if r.Verdict == Failed {
			cells[3], cells[7], cells[8] = "", "", ""
			cells[13] += ": " + strings.Join(strings.Fields(r.Error), " ")
		}
		if over && r.Over != 0 {
			cells = append(cells, fmt.Sprintf("%+.1f", r.Over), fmt.Sprintf("[%+.1f, %+.1f]", r.OverLow, r.OverHigh))
		} else if over {
			cells = append(cells, "", "")
		}
		out = append(out, cells)
	}
	return out
}

// Series returns a kernel's release as far as its second number: 6.1 of
// 6.1.0-44-amd64.
func Series(release string) string {
	parts := strings.SplitN(release, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// WriteGoBench prints every pass of both sides in the format of go test -bench:
//
//	benchstat -col /side verbs.txt
//
// The baseline's passes are those that ours are divided by. Kernel and clock are
// the configuration of a result, of which benchstat makes a table each.
func WriteGoBench(w io.Writer, records []Record) {
	units := make(map[string]bool)
	for _, r := range records {
		unit := benchUnit(r.Unit)
		if better := direction(r.Unit); better != "" && !units[unit] {
			fmt.Fprintf(w, "Unit %s better=%s\n", unit, better)
		}
		units[unit] = true
	}
	config := ""
	for _, r := range records {
		if len(r.Ours) == 0 {
			continue
		}
		if c := fmt.Sprintf("kernel: %s\nclock: %s\ntopology: %s\n", r.Kernel, r.Clock, r.Topology); c != config {
			fmt.Fprint(w, "\n", c)
			config = c
		}
		for _, side := range []struct {
			name   string
			values []float64
		}{{"ours", r.Ours}, {"baseline", r.BaseFirst}} {
			for _, v := range side.values {
				fmt.Fprintf(w, "Benchmark_%s/side=%s 1 %g %s\n", r.Name, side.name, v, benchUnit(r.Unit))
			}
		}
	}
}

// benchUnit names a unit as Go's benchmarks do. "us" has no such name and stays.
func benchUnit(unit string) string {
	switch unit {
	case "1":
		return "ratio"
	case "bytes":
		return "B"
	}
	return unit
}

// direction returns what benchstat shall take as better.
func direction(unit string) string {
	switch {
	case slices.Contains([]string{"us", "ns", "bytes", "QPs", "leases"}, unit):
		return "lower"
	case strings.HasSuffix(unit, "/s"):
		return "higher"
	}
	return ""
}
