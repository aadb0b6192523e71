package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/measure"
)

const latencyOutput = `
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      500          172.53         275.92       172.53   	       174.07      	8.69   		242.19  		275.92
---------------------------------------------------------------------------------------
`

const bandwidthOutput = `
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      200              11.91              11.90  		   0.000190
`

func TestPerftestTables(t *testing.T) {
	v, err := parsePerftest([]byte(latencyOutput), latTypical)
	require.NoError(t, err)
	require.Equal(t, 172.53, v)
	v, err = parsePerftest([]byte(bandwidthOutput), bwAverage)
	require.NoError(t, err)
	require.Equal(t, 11.90, v)
	v, err = parsePerftest([]byte(bandwidthOutput), bwRate)
	require.NoError(t, err)
	require.Equal(t, 0.00019, v)
	for _, bad := range []string{"", "#bytes", "#bytes\n1 2\n", "Couldn't connect to 10.77.0.2:18515"} {
		_, err := parsePerftest([]byte(bad), latTypical)
		require.Error(t, err, bad)
	}
}

// All sides run equally often and in every place of the order; a pass that
// fails once is repeated and counted, one that fails twice ends the run.
func TestInterleaving(t *testing.T) {
	var order string
	side := func(name string, v float64) pass {
		return func(context.Context) (float64, error) { order += name; return v, nil }
	}
	b := benchmark{name: "x", clocks: []string{"wall"}, target: measure.AtMost(2), ours: side("o", 3), base: side("b", 2)}
	recs, err := measureSuite(context.Background(), env{clock: "wall"}, []benchmark{b}, 6, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "bobobbbbobobobbbbo", order)
	require.Equal(t, 1.5, recs[0].Ratio)
	require.Equal(t, measure.Met, recs[0].Verdict)

	failures := 1
	b.ours = func(context.Context) (float64, error) {
		if failures--; failures >= 0 {
			return 0, errors.New("no luck")
		}
		return 2, nil
	}
	recs, err = measureSuite(context.Background(), env{clock: "wall"}, []benchmark{b}, 3, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 1, recs[0].Failed)
	failures = 2
	_, err = measureSuite(context.Background(), env{clock: "wall"}, []benchmark{b}, 3, io.Discard)
	require.ErrorContains(t, err, "no luck")
}
