package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
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

// Both programs get the same flags, and each combination of waiting and posting
// is a row of its own.
func TestBandwidthRows(t *testing.T) {
	var names []string
	for _, b := range bandwidths(harness.Env{Clock: harness.Instructions}) {
		require.Equal(t, ">= 0.97", b.Figures[0].Target.String(), b.Name)
		require.Equal(t, harness.Both, b.Judged, b.Name)
		names = append(names, b.Name)
	}
	require.ElementsMatch(t, []string{
		"write_bw_64KiB_poll_single", "write_bw_64KiB_poll_list",
		"send_ud_rate_1KiB_poll_single", "send_ud_rate_1KiB_poll_list", "send_ud_rate_1KiB_event_single", "send_ud_rate_1KiB_event_list",
		"read_bw_64KiB_poll_single", "read_bw_64KiB_event_single",
	}, names)
}
