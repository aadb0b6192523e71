package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	shapes "gonum.org/v1/plot/vg/draw"
)

// draw plots the latency of each small READ over time.
func draw(path string, without, with result) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "s", "ms for a READ of 64 bytes"
	p.Legend.Top = true
	if err := add(p, without, color.RGBA{200, 60, 40, 255}); err != nil {
		return err
	}
	if err := add(p, with, color.RGBA{0, 70, 160, 255}); err != nil {
		return err
	}
	return p.Save(20*vg.Centimeter, 12*vg.Centimeter, path)
}

func add(p *plot.Plot, r result, c color.Color) error {
	points := make(plotter.XYs, len(r.took))
	for i := range r.took {
		points[i] = plotter.XY{X: r.at[i].Seconds(), Y: r.took[i].Seconds() * 1000}
	}
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	dots.Color, dots.Shape, dots.Radius = c, shapes.CircleGlyph{}, vg.Points(1.5)
	p.Add(dots)
	p.Legend.Add(r.name, dots)
	return nil
}
