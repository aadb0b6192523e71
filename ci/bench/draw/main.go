// Draw makes a plot of a table, as an SVG file beside it:
//
//	go run ./ci/bench/draw [-log] file.csv ...
//
// The first column of the table is the horizontal axis, and each other one a line; empty cells
// are left out. Tests of srd/internal/engine and pacer/internal/sim write such tables with -large FOLDER.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

func main() {
	logarithmic := flag.Bool("log", false, "logarithmic axes, and a mark at each point")
	flag.Parse()
	for _, path := range flag.Args() {
		if err := draw(path, *logarithmic); err != nil {
			fmt.Fprintf(os.Stderr, "draw: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func draw(path string, logarithmic bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	p := plot.New()
	p.Legend.Top = true
	p.X.Label.Text = rows[0][0]
	var lines []any // names and points, as plotutil takes them
	for column, name := range rows[0][1:] {
		var points plotter.XYs
		for _, row := range rows[1:] {
			if row[column+1] == "" {
				continue
			}
			x, err := strconv.ParseFloat(row[0], 64)
			if err != nil {
				return err
			}
			y, err := strconv.ParseFloat(row[column+1], 64)
			if err != nil {
				return err
			}
			points = append(points, plotter.XY{X: x, Y: y})
		}
		lines = append(lines, name, points)
	}
	if logarithmic {
		p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		err = plotutil.AddLinePoints(p, lines...)
	} else {
		err = plotutil.AddLines(p, lines...)
	}
	if err != nil {
		return err
	}
	return p.Save(16*vg.Centimeter, 10*vg.Centimeter, strings.TrimSuffix(path, ".csv")+".svg")
}
