package rig

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	v, err := parsePerftest([]byte(latencyOutput), LatTypical)
	require.NoError(t, err)
	require.Equal(t, 172.53, v)
	v, err = parsePerftest([]byte(bandwidthOutput), BWAverage)
	require.NoError(t, err)
	require.Equal(t, 11.90, v)
	v, err = parsePerftest([]byte(bandwidthOutput), BWRate)
	require.NoError(t, err)
	require.Equal(t, 0.00019, v)
	for _, bad := range []string{"", "#bytes", "#bytes\n1 2\n", "Couldn't connect to 10.77.0.2:18515"} {
		_, err := parsePerftest([]byte(bad), LatTypical)
		require.Error(t, err, bad)
	}
}
