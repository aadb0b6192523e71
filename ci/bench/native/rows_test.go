package native

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/measure"
)

// Every row can be measured, and leaves nothing behind for the next one.
func TestRows(t *testing.T) {
	if os.Getenv("SIMHCA") != "mlx5,mlx5,efa" {
		t.Skip("needs SIMHCA=mlx5,mlx5,efa and the build tag simhca")
	}
	var records []measure.Record
	e := harness.Env{Clock: harness.Wall, PassLimit: time.Minute}
	err := harness.Run(t.Context(), e, suite(size{blocks: 1, block: 20}), 1, io.Discard, func(r []measure.Record) error {
		records = r
		return nil
	})
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, r := range records {
		require.Zero(t, r.Failed, "%s: %s", r.Name, r.Error)
		require.False(t, names[r.Name], r.Name)
		names[r.Name] = true
	}
	for _, name := range []string{"batch_read", "requester_read", "dc_in_c", "dc_read", "lock_read", "lock_update", "cache_get_64B", "cache_get_rc_64B", "cache_get_member_64B", "cache_get_16KiB", "multiget32", "multiget32_rc", "cache_set", "cache_set_polled",
		"pacer_read", "srd_pingpong_64B", "srd_rate_64B", "srd_bulk", "srd_send_64B_mean_over_best", "srd_send_64B_polled", "requester_rate_8", "lock_read_rate_two_clients", "cache_get_rate_64"} {
		require.True(t, names[name], name)
	}
}
