package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
)

// Each row that has a target, with the target.
func TestRows(t *testing.T) {
	targets := map[string]string{}
	for _, b := range append(Suite(harness.Env{}), gateways("")...) {
		for _, f := range b.Figures {
			if f.Target != nil {
				targets[f.Name] = f.Target.String()
			}
		}
	}
	delete(targets, "multiget32_delay") // in the lab alone
	require.Equal(t, map[string]string{
		"get_64B": "<= 1.15", "get_1KiB": "<= 1.15", "get_64B_event": "<= 1.5",
		"get_64B_vs_memcached": "<= 0.2", "get_1KiB_vs_memcached": "<= 0.2", "get_16KiB_vs_memcached": "<= 0.67",
		"ycsb_b_vs_memcached": ">= 4", "ycsb_c_vs_memcached": ">= 4", "ycsb_a_vs_memcached": ">= 1.5",
		"bucket_read": "<= 2.1", "proxy_get_64B_vs_memcached": "<= 0.5", "arena_bytes_per_stored_byte": "<= 1.25",
		"multiget32": ">= 2", "server_cpu_per_get": "<= 0.01",
		"gateway_get_64B": ">= 0.9", "gateway_get_64B_cpu": "<= 1.3", "gateway_get_64B_50": ">= 0.9", "gateway_get_64B_50_cpu": "<= 1.3", "gateway_get_64B_50_p99": "<= 1.5",
		"gateway_set_64B": ">= 0.9", "gateway_set_64B_cpu": "<= 1.3", "gateway_set_64B_50": ">= 0.9", "gateway_set_64B_50_cpu": "<= 1.3", "gateway_set_64B_50_p99": "<= 1.5",
		"proxy_get_64B":       ">= 0.5",
		"map_bytes_per_entry": "<= 32", "server_bytes_per_connection": "<= 65536",
	}, targets)
}
