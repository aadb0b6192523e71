package pacerprom

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/pacer"
)

func TestCollector(t *testing.T) {
	p, err := pacer.New(pacer.Config{Threshold: 40000, Classes: []pacer.Class{{Name: "bulk"}, {Name: "fast"}}})
	require.NoError(t, err)
	c, err := p.Acquire(t.Context(), 1, 5000)
	require.NoError(t, err)
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(New(p)))
	values := func() map[string]float64 {
		out := map[string]float64{}
		families, err := r.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.Metric {
				name := f.GetName()
				for _, l := range m.Label {
					name += " " + l.GetValue()
				}
				out[name] = m.Gauge.GetValue() + m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
		return out
	}
	v := values()
	require.Equal(t, 5132.0, v["pacer_outstanding_bytes"])
	require.Equal(t, 5132.0, v["pacer_class_outstanding_bytes 1 fast"])
	require.Equal(t, 0.0, v["pacer_class_outstanding_bytes 0 bulk"])
	require.Equal(t, 40000.0, v["pacer_threshold_bytes"])
	require.Equal(t, 1.0, v["pacer_class_granted_total 1 fast"])
	require.Equal(t, 5132.0, v["pacer_solicited_bytes_total"])
	require.Equal(t, 1.0, v["pacer_class_queue_delay_seconds 1 fast"])
	require.Equal(t, 0.0, v["pacer_class_queue_delay_seconds 0 bulk"])
	require.Len(t, v, 12+6*2)
	c.Release()
	require.Equal(t, 0.0, values()["pacer_outstanding_bytes"])
	require.NoError(t, p.Close())
}

// Classes need no names, nor different ones: their series are told apart all the same.
func TestClassesOfOneName(t *testing.T) {
	for _, names := range [][]string{{"", ""}, {"bulk", "bulk"}, {"bulk", "bulk", "bulk 1"}, {"1", "", "1"}, {"\xff", "fast"}} {
		var classes []pacer.Class
		for _, n := range names {
			classes = append(classes, pacer.Class{Name: n})
		}
		p, err := pacer.New(pacer.Config{Classes: classes})
		require.NoError(t, err)
		r := prometheus.NewPedanticRegistry()
		require.NoError(t, r.Register(New(p)))
		_, err = r.Gather()
		require.NoError(t, err, "%q", names)
		require.NoError(t, p.Close())
	}
}
