package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// point is a value of a side in a chart.
type point struct {
	value     float64
	low, high float64 // interval, if high is not 0
	side      int
}

// line is a row of a chart of dots, or a curve.
type line struct {
	name   string
	points []point
	colour int    // of a curve
	dashed bool   // a curve of the baseline
	note   string // of a row, at its right
}

// colours of the sides: ours, the baseline, and others; curves have no grey.
var colours = []string{"#0b5cad", "#8a8a8a", "#c2691c", "#3b8f5a", "#7d55a8", "#b8405e"}

// scale maps values to 0..1, logarithmically over whole decades or linearly.
type scale struct {
	low, high float64
	log       bool
}

func scaleOf(all []line, log bool) (s scale, ok bool) {
	s = scale{math.Inf(1), math.Inf(-1), log}
	for _, l := range all {
		for _, p := range l.points {
			for _, v := range []float64{p.value, p.low, p.high} {
				if v > 0 {
					s.low, s.high = min(s.low, v), max(s.high, v)
				}
			}
		}
	}
	if s.low > s.high {
		return s, false
	}
	if !log {
		s.low, s.high = 0, s.high*1.05
		return s, true
	}
	s.low, s.high = step(s.low, false), step(s.high*1.0001, true)
	return s, true
}

// step returns the next 1, 2 or 5 times a power of ten, at most or at least v.
func step(v float64, up bool) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if up && m*decade >= v {
			return m * decade
		}
		if !up && m*decade > v {
			return map[float64]float64{2: 1, 5: 2, 10: 5}[m] * decade
		}
	}
	return v
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = max(v, s.low)
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

// ticks returns values for lines of the grid, at most about eight.
func (s scale) ticks() (out []float64) {
	if !s.log {
		width := step(s.high/6, true)
		for v := 0.0; v <= s.high; v += width {
			out = append(out, v)
		}
		return out
	}
	for v := s.low; v <= s.high*1.0001; v = step(v*1.0001, true) {
		out = append(out, v)
	}
	if len(out) > 8 {
		kept := out[:0]
		for _, v := range out {
			if l := math.Log10(v); math.Abs(l-math.Round(l)) < 1e-6 {
				kept = append(kept, v)
			}
		}
		out = kept
	}
	return out
}

func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.4gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

// drawing collects the elements of a picture.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.Builder, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, class, text string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, html.EscapeString(text))
}

// begin begins a picture, with its title and the names of the sides.
func (d *drawing) begin(width, height float64, title string, sides []string) {
	d.add(`<svg viewBox="0 0 %.0f %.0f" width="%.0f" role="img" aria-label="%s">`, width, height, width, html.EscapeString(title))
	d.text(0, 16, "start", "title", title)
	x := 0.0
	for i, s := range sides {
		d.add(`<circle cx="%.1f" cy="32" r="4.5" fill="%s"/>`, x+6, colours[i%len(colours)])
		d.text(x+15, 36, "start", "", s)
		x += 30 + 7.4*float64(len(s))
	}
}

// dots draws a row for each line, with a dot for each side and its interval; mark is a value with a
// line of its own, if not 0.
func dots(title, unit string, sides []string, rows []line, log bool, mark float64) string {
	s, ok := scaleOf(rows, log)
	if !ok {
		return ""
	}
	const left, top, pitch = 290.0, 48.0, 17.0
	width, right := 900.0, 30.0
	if rows[0].note != "" {
		width, right = 1000, 290
	}
	bottom := top + pitch*float64(len(rows))
	x := func(v float64) float64 { return left + s.at(v)*(width-left-right) }
	var d drawing
	d.begin(width, bottom+36, title, sides)
	for _, t := range s.ticks() {
		d.add(`<line x1="%.1f" x2="%[1]f" y1="%.1f" y2="%.1f" class="grid"/>`, x(t), top, bottom)
		d.text(x(t), bottom+14, "middle", "", number(t))
	}
	d.text(width-right, bottom+30, "end", "", unit)
	if mark != 0 {
		d.add(`<line x1="%.1f" x2="%[1]f" y1="%.1f" y2="%.1f" class="mark"/>`, x(mark), top, bottom)
	}
	for i, l := range rows {
		y := top + pitch*(float64(i)+0.5)
		d.text(left-10, y+4, "end", "", l.name)
		d.text(width-right+20, y+4, "start", "", l.note)
		for k := len(l.points) - 1; k >= 0; k-- { // ours on top
			p := l.points[k]
			colour := colours[p.side%len(colours)]
			if p.high > 0 {
				d.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%[3]f" stroke="%s" stroke-width="2"/>`, x(p.low), x(p.high), y, colour)
			}
			d.add(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"><title>%s</title></circle>`, x(p.value), y, colour,
				html.EscapeString(fmt.Sprintf("%s, %s: %s %s", l.name, sides[min(p.side, len(sides)-1)], number(p.value), unit)))
		}
	}
	d.add(`</svg>`)
	return d.String()
}

// curves draws a line for each series over values that stand at equal distances.
func curves(title, below, unit string, xs []string, series []line) string {
	s, ok := scaleOf(series, true)
	if !ok {
		return ""
	}
	const left, right, top, height = 60.0, 240.0, 52.0, 240.0
	width, bottom := 900.0, top+height
	x := func(i int) float64 {
		return left + (width-left-right)*(float64(i)+0.5)/float64(len(xs))
	}
	y := func(v float64) float64 { return bottom - s.at(v)*height }
	var d drawing
	d.begin(width, bottom+40, title, nil)
	for _, t := range s.ticks() {
		d.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%[3]f" class="grid"/>`, left, width-right, y(t))
		d.text(left-6, y(t)+4, "end", "", number(t))
	}
	for i, name := range xs {
		d.text(x(i), bottom+16, "middle", "", name)
	}
	d.text(width-right, bottom+32, "end", "", below)
	d.text(left-6, top-14, "end", "", unit)
	for i, l := range series {
		colour, dash := colours[l.colour%len(colours)], ""
		if l.dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		var path []string
		for k, p := range l.points {
			if p.value > 0 {
				path = append(path, fmt.Sprintf("%.1f,%.1f", x(k), y(p.value)))
				d.add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s</title></circle>`, x(k), y(p.value), colour,
					html.EscapeString(fmt.Sprintf("%s at %s: %s %s", l.name, xs[k], number(p.value), unit)))
			}
		}
		d.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`, strings.Join(path, " "), colour, dash)
		key := top + 8 + 17*float64(i)
		d.add(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%[3]f" stroke="%s" stroke-width="2"%s/>`, width-right+12, width-right+38, key, colour, dash)
		d.text(width-right+44, key+4, "start", "", l.name)
	}
	d.add(`</svg>`)
	return d.String()
}
