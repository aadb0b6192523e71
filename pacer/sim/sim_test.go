package sim

import (
	"flag"
	"image/color"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

var large = flag.String("large", "", "`folder` for the plot of the simulation of 1,000 requesters and 64 servers, which takes ten seconds; empty means a small one, and no plot")

// A thousand requesters and 64 servers, 48 B requests and 2,048 B responses: with a
// threshold the links are as busy or busier, nothing is dropped, and hardly anything
// waits in the switch.
func TestThousandRequesters(t *testing.T) {
	c := Config{Duration: time.Millisecond, Seed: 3}
	if *large == "" { // a tenth of the requesters, and of their servers' speed
		c.Requesters, c.Duration = 100, 250*time.Microsecond
	}
	const threshold = 24 << 10
	way := func(name string, threshold int64, tune bool) Result {
		c := c
		c.Threshold, c.Tune = threshold, tune
		start := time.Now()
		r, err := Run(c)
		require.NoError(t, err)
		t.Logf("%s: goodput %.3f of the links, p50 %v, p99 %v, probe p50 %v p99 %v, queue p50 %d p99 %d max %d B, %d of %d responses dropped, fairness %.4f (%v)", name,
			r.Goodput, r.P50, r.P99, r.Probe50, r.Probe99, r.Queue50, r.Queue99, r.QueueMax, r.Dropped, r.Responses, r.Fairness, time.Since(start).Round(time.Second))
		return r
	}
	unpaced, paced, tuned := way("unpaced", 0, false), way("paced", threshold, false), way("tuned", 0, true)
	require.Positive(t, unpaced.Dropped)
	require.Greater(t, paced.Goodput, unpaced.Goodput*0.97)
	for _, r := range []Result{paced, tuned} {
		require.Zero(t, r.Dropped)
		require.LessOrEqual(t, r.QueueMax, int64(threshold))
		require.Less(t, r.Probe99, unpaced.Probe99/2)
		require.Greater(t, r.Fairness, 0.98)
	}
	if *large != "" {
		draw(t, *large, []line{{"unpaced", unpaced, color.RGBA{200, 60, 40, 255}}, {"paced, threshold 24 KiB", paced, color.RGBA{0, 70, 160, 255}},
			{"paced, threshold found", tuned, color.RGBA{30, 130, 60, 255}}})
	}
}

type line struct {
	name string
	Result
	color color.Color
}

// draw plots what waits in the switch's port to one of the requesters.
func draw(t *testing.T, folder string, lines []line) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "us", "KiB that wait in the switch for one requester"
	p.Legend.Top = true
	for _, l := range lines {
		var xy plotter.XYs
		step := max(len(l.Queue)/800, 1)
		for i := 0; i < len(l.Queue); i += step {
			xy = append(xy, plotter.XY{X: float64(l.Queue[i].At) / 1e3, Y: float64(l.Queue[i].Bytes) / 1024})
		}
		drawn, err := plotter.NewLine(xy)
		require.NoError(t, err)
		drawn.Color = l.color
		p.Add(drawn)
		p.Legend.Add(l.name, drawn)
	}
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, p.Save(20*vg.Centimeter, 10*vg.Centimeter, filepath.Join(folder, "pacer-incast.svg")))
}

// The same seed is the same simulation.
func TestRepeats(t *testing.T) {
	c := Config{Requesters: 20, Servers: 4, Duration: time.Millisecond, Seed: 9, Tune: true}
	a, err := Run(c)
	require.NoError(t, err)
	b, err := Run(c)
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Positive(t, a.Completed)
}
