package srd

import (
	"errors"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// PlotTails draws how long messages take by the share of packets that are lost, for each
// kernel and clock with all figures of it: base and, behind it, what it is of are the
// file's name.
func PlotTails(base string, records []measure.Record) error {
	of := make(map[[2]string]map[string]*measure.Record)
	for i := range records {
		r := &records[i]
		key := [2]string{measure.Series(r.Kernel), r.Clock}
		if of[key] == nil {
			of[key] = make(map[string]*measure.Record)
		}
		of[key][r.Name] = r
	}
	var errs []error
	for key, named := range of {
		lines, ok := tailLines(named)
		if !ok {
			continue
		}
		title := fmt.Sprintf("64 bytes, one at a time; Soft-RoCE, Linux %s, %s", key[0], key[1])
		errs = append(errs, drawTails(fmt.Sprintf("%s-tails-%s-%s.svg", base, key[0], key[1]), title, lines))
	}
	return errors.Join(errs...)
}

// tailLine is a quantile of one side, in milliseconds.
type tailLine struct {
	name     string
	side     int
	quantile int
	points   plotter.XYs
}

// tailLines returns what is drawn, unless a figure is missing.
func tailLines(named map[string]*measure.Record) (lines []tailLine, ok bool) {
	names := [3]string{"srd", tailRC + ", 67 ms timeout", tailQuick}
	for side := range names {
		for k, q := range tailQuantiles {
			l := tailLine{name: names[side] + ": " + q.label, side: side, quantile: k}
			for x, loss := range tailLosses {
				name := tailName(loss, q.name)
				if side == 2 {
					name = quickName(name)
				}
				r := named[name]
				if r == nil || r.Value <= 0 || r.BaselineValue <= 0 {
					return nil, false
				}
				us := r.BaselineValue
				if side == 0 {
					us = r.Value
				}
				l.points = append(l.points, plotter.XY{X: float64(x), Y: us / 1000})
			}
			lines = append(lines, l)
		}
	}
	return lines, true
}

func drawTails(path, title string, lines []tailLine) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "packets lost in each direction", "ms"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	colors := [3]color.RGBA{{0, 70, 160, 255}, {190, 40, 30, 255}, {220, 140, 30, 255}}
	shapes := [3]draw.GlyphDrawer{draw.CircleGlyph{}, draw.TriangleGlyph{}, draw.SquareGlyph{}}
	dashes := [3][]vg.Length{{vg.Points(1), vg.Points(3)}, nil, {vg.Points(6), vg.Points(3)}}
	for _, l := range lines {
		line, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return err
		}
		line.Color, line.Dashes, line.Width = colors[l.side], dashes[l.quantile], vg.Points(1.2)
		dots.Color, dots.Shape, dots.Radius = colors[l.side], shapes[l.quantile], vg.Points(3)
		p.Add(line, dots)
		p.Legend.Add(l.name, line, dots)
	}
	var losses []string
	for _, loss := range tailLosses {
		losses = append(losses, fmt.Sprintf("%g %%", 100*loss))
	}
	p.NominalX(losses...)
	p.X.Max += 1.6 // room for the legend
	p.Legend.Top = true
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, path)
}
