package report

import (
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// family are figures whose names have a number, which is the horizontal axis of a picture. The
// rest of a name is the name of its curve.
type family struct {
	suite, title string
	names        *regexp.Regexp // with the groups x and, of names with several curves, curve
	below        string         // the horizontal axis
	baseline     string         // name of the dashed curves; empty: the baseline is not drawn
}

var families = []family{
	{"dc", "WRITEs of 64 bytes to several targets by 31 contexts", regexp.MustCompile(`^targets_(?P<x>\d+)_(?P<curve>uniform)_rate$`), "targets", "RC connections"},
	{"native", "Rate of several goroutines against one", regexp.MustCompile(`^(?P<curve>requester|lock_read|cache_get)_rate_(?P<x>\d+)$`), "goroutines", "one"},
	{"lockoffload", "Updates by several clients", regexp.MustCompile(`^contended_(?P<curve>update|agent|agent_fair|handoff_zipf)_goodput_(?P<x>\d+)$`), "clients", "baseline"},
	{"srd", "One message of 64 bytes at a time, on a network that loses packets", regexp.MustCompile(`^loss(?P<x>\d+)_(?P<curve>p50|p99|p999)$`), "% of the packets are lost", "RC"},
	{"pacer", "Goodput of a link with incast", regexp.MustCompile(`^incast_(?P<x>\d+)_(?P<curve>goodput)_of_link$`), "queue pairs that READ", ""},
	{"pacer", "p99 of small READs beside incast", regexp.MustCompile(`^incast_(?P<x>\d+)_(?P<curve>probe_p99)_vs_unpaced$`), "queue pairs that READ", "unpaced"},
}

// pictures returns those of a table: families first, then all rows with a baseline, and then those
// that have only a target.
func (t *table) pictures() (out []template.HTML) {
	add := func(svg string) {
		if svg != "" {
			out = append(out, template.HTML(svg)) // its texts are escaped
		}
	}
	if t.Name == hitRates {
		add(t.rates())
		return out
	}
	for _, f := range families {
		for _, where := range t.places() {
			if f.suite == t.Name {
				add(f.draw(t.rows, where))
			}
		}
	}
	for _, where := range t.places() {
		add(ratios(t.rows, where))
		for _, unit := range units(t.rows, where) {
			add(values(t.rows, where, unit))
		}
		add(shares(t.rows, where))
	}
	return out
}

// places returns the kernels and clocks of a table, in its order.
func (t *table) places() (out []string) {
	for _, r := range t.rows {
		if w := r.where(); !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// draw draws a family as it was measured at one place.
func (f *family) draw(rows []row, where string) string {
	var xs []int
	byCurve := map[string]map[int]row{}
	var curveNames []string
	unit := ""
	for _, r := range rows {
		m := f.names.FindStringSubmatch(r.name)
		if m == nil || r.where() != where {
			continue
		}
		x, _ := strconv.Atoi(m[f.names.SubexpIndex("x")])
		curve := m[f.names.SubexpIndex("curve")]
		if byCurve[curve] == nil {
			byCurve[curve] = map[int]row{}
			curveNames = append(curveNames, curve)
		}
		byCurve[curve][x] = r
		if !slices.Contains(xs, x) {
			xs = append(xs, x)
		}
		unit = r.unit
	}
	if len(xs) < 2 {
		return ""
	}
	slices.Sort(xs)
	var lines []line
	for i, name := range curveNames {
		colour := i + min(i, 1)
		ours, base := line{name: strings.ReplaceAll(name, "_", " "), colour: colour}, line{name: f.baseline, colour: colour, dashed: true}
		if len(curveNames) > 1 {
			base.name = ours.name + ": " + f.baseline
		}
		for _, x := range xs {
			r := byCurve[name][x]
			ours.points = append(ours.points, point{value: r.ours})
			base.points = append(base.points, point{value: r.baseline})
		}
		lines = append(lines, ours)
		if f.baseline != "" {
			lines = append(lines, base)
		}
	}
	labels := make([]string, len(xs))
	for i, x := range xs {
		labels[i] = strconv.Itoa(x)
	}
	return curves(f.title+" ("+where+")", f.below, unit, labels, lines)
}

// ratios draws the ratios of all rows with a baseline.
func ratios(rows []row, where string) string {
	var lines []line
	for _, r := range rows {
		if r.ratio > 0 && r.where() == where {
			lines = append(lines, line{name: r.name, points: []point{{value: r.ratio, low: r.low, high: r.high}}})
		}
	}
	return dots("Ratio to the baseline, with its interval ("+where+")", "", []string{"ratio"}, lines, true, 1)
}

// shares draws the rows that have no baseline as shares of their targets.
func shares(rows []row, where string) string {
	var lines []line
	for _, r := range rows {
		if r.limit > 0 && r.ours > 0 && r.where() == where {
			p := point{value: r.ours / r.limit, low: r.low / r.limit, high: r.high / r.limit}
			lines = append(lines, line{name: r.name, points: []point{p}, note: number(r.ours) + " " + r.unit + ", target " + r.target})
		}
	}
	return dots("Share of the target, with its interval ("+where+")", "", []string{"share"}, lines, true, 1)
}

// units returns the units in which rows with a baseline are, most frequent use first.
func units(rows []row, where string) (out []string) {
	n := map[string]int{}
	for _, r := range rows {
		if r.baseline > 0 && r.where() == where {
			if n[r.unit]++; n[r.unit] == 1 {
				out = append(out, r.unit)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return n[b] - n[a] })
	return slices.DeleteFunc(out, func(u string) bool { return n[u] < 3 })
}

// values draws both sides of the rows of one unit.
func values(rows []row, where, unit string) string {
	var lines []line
	for _, r := range rows {
		if r.baseline > 0 && r.unit == unit && r.where() == where {
			lines = append(lines, line{name: r.name, points: []point{{value: r.ours}, {value: r.baseline, side: 1}}})
		}
	}
	return dots("goverbs and its baseline, in "+unit+" ("+where+")", unit, []string{"goverbs", "baseline"}, lines, true, 0)
}

// rates draws the hit rates, whose columns are traces and the sides in percent.
func (t *table) rates() string {
	var sides []string
	for _, h := range t.Heading[1:] {
		if strings.HasPrefix(h, "over") {
			break
		}
		sides = append(sides, h)
	}
	var lines []line
	for _, cells := range t.Cells {
		l := line{name: cells[0]}
		for i := range sides {
			if v, err := strconv.ParseFloat(strings.TrimSuffix(cells[i+1], " %"), 64); err == nil {
				l.points = append(l.points, point{value: v, side: i})
			}
		}
		lines = append(lines, l)
	}
	return dots("Hit rate by memory and sizes of the values", "%", sides, lines, false, 0)
}
