// Package promtest tests lists of metrics.
package promtest

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/prom"
)

// Fields checks that each number of a struct of statistics is the value of one metric.
func Fields[S any](t *testing.T, metrics []prom.Metric[S]) {
	t.Helper()
	var s S
	v := reflect.ValueOf(&s).Elem()
	want := map[float64]string{}
	for i := range v.NumField() {
		f, n := v.Field(i), i+1
		switch {
		case f.Type() == reflect.TypeFor[time.Duration]():
			f.SetInt(int64(n) * int64(time.Second))
		case f.CanUint():
			f.SetUint(uint64(n))
		case f.CanInt():
			f.SetInt(int64(n))
		default:
			t.Fatalf("%s is a %v", v.Type().Field(i).Name, f.Type())
		}
		want[float64(n)] = v.Type().Field(i).Name
	}
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(prom.One("x_", metrics, func() S { return s })))
	families, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, families, len(want))
	for _, f := range families {
		value := f.Metric[0].Counter.GetValue() + f.Metric[0].Gauge.GetValue()
		require.NotEmpty(t, want[value], "%s is of no field, or of one that another metric has", f.GetName())
		delete(want, value)
	}
}
