package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// checkPlot refuses what cannot be drawn before anything is measured.
func (o *options) checkPlot() error {
	switch ext := filepath.Ext(o.plot); {
	case o.plot == "":
	case ext != ".svg" && ext != ".png":
		return fmt.Errorf("-plot %s: there are .svg and .png", o.plot)
	case o.server == "":
		return errors.New("-plot is for the client: the server measures nothing")
	case o.bandwidth() && !o.Sweep:
		return errors.New("-plot draws bandwidth by size: it needs -a")
	}
	return nil
}

// draw draws the results of a run as the kind of test and their number ask for.
func draw(path string, results []*result) error {
	if len(results) == 0 {
		return nil
	}
	first := results[0]
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s %s, %d bytes, %s, Linux %s", first.p.Test, first.p.Transport, first.p.Size, first.setup.Device, first.setup.Kernel)
	p.Add(plotter.NewGrid())
	var err error
	switch {
	case first.p.bandwidth():
		err = drawBySize(p, results, "MiB/s", map[string]func(*result) float64{"average": func(r *result) float64 { return r.rates.MiBps }})
	case len(results) > 1:
		err = drawBySize(p, results, "us", map[string]func(*result) float64{
			"p50": func(r *result) float64 { return r.lat.P50 }, "p99": func(r *result) float64 { return r.lat.P99 }})
	default:
		err = drawDistribution(p, first)
	}
	if err != nil {
		return err
	}
	return p.Save(18*vg.Centimeter, 11*vg.Centimeter, path)
}

// drawDistribution draws which part of the latencies was at most so long. The
// longest of them would press the rest into a corner, so that the axis ends at
// p99.9.
func drawDistribution(p *plot.Plot, r *result) error {
	var points plotter.XYs
	for _, b := range r.hist.CumulativeDistribution() {
		if us := float64(b.ValueAt) / 1000; us <= r.lat.P999 {
			points = append(points, plotter.XY{X: us, Y: b.Quantile})
		}
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	p.Add(line)
	p.X.Label.Text = fmt.Sprintf("latency [us]; p50 %.1f, p99 %.1f, p99.9 %.1f, max %.1f", r.lat.P50, r.lat.P99, r.lat.P999, r.lat.Max)
	p.Y.Label.Text = "at most that long [%]"
	p.Y.Min, p.Y.Max = 0, 100
	return nil
}

func drawBySize(p *plot.Plot, results []*result, unit string, values map[string]func(*result) float64) error {
	first, last := results[0], results[len(results)-1]
	p.Title.Text = fmt.Sprintf("%s %s, %d to %d bytes, %s, Linux %s", first.p.Test, first.p.Transport, first.p.Size, last.p.Size, first.setup.Device,
		first.setup.Kernel)
	p.X.Label.Text, p.Y.Label.Text = "message size [bytes]", unit
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	for _, name := range []string{"average", "p50", "p99"} {
		value := values[name]
		if value == nil {
			continue
		}
		points := make(plotter.XYs, len(results))
		for i, r := range results {
			points[i] = plotter.XY{X: float64(r.p.Size), Y: value(r)}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		if name == "p99" {
			line.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		}
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return nil
}
