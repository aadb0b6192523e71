package measure

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plot draws the ratios with their intervals, and the intervals of the
// baseline against itself in grey, as an SVG or PNG file by its name.
func Plot(path string, records []Record) error {
	p := plot.New()
	p.X.Label.Text = "ratio to the baseline (grey: the baseline to itself)"
	var names []string
	ratios, self := &points{}, &points{}
	for _, r := range records {
		if r.Ratio == 0 {
			continue
		}
		y := float64(len(names))
		names = append(names, fmt.Sprintf("%s, %s, %s", r.Name, Series(r.Kernel), r.Clock))
		ratios.add(r.Ratio, y, r.RatioLow, r.RatioHigh)
		self.add((r.AALow+r.AAHigh)/2, y+0.25, r.AALow, r.AAHigh)
	}
	if len(names) == 0 {
		return nil
	}
	for _, s := range []struct {
		*points
		color color.Color
	}{{self, color.Gray{160}}, {ratios, color.RGBA{0, 70, 160, 255}}} {
		bars, err := plotter.NewXErrorBars(s.points)
		if err != nil {
			return err
		}
		bars.Color = s.color
		dots, err := plotter.NewScatter(s.points)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape = s.color, draw.CircleGlyph{}
		p.Add(bars, dots)
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(names)) - 0.5}})
	if err != nil {
		return err
	}
	one.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(one)
	p.NominalY(names...)
	return p.Save(24*vg.Centimeter, vg.Length(len(names)+3)*vg.Centimeter*0.8, path)
}

// points have errors in X.
type points struct {
	plotter.XYs
	plotter.XErrors
}

func (p *points) add(x, y, low, high float64) {
	p.XYs = append(p.XYs, plotter.XY{X: x, Y: y})
	p.XErrors = append(p.XErrors, struct{ Low, High float64 }{x - low, high - x})
}
