package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
)

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
