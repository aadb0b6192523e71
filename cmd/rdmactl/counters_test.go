package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The specification counts data in words of four bytes (PortXmitData), which
// users do not expect.
func TestDataCountersAreBytes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"port_xmit_data": "25\n", "port_rcv_data": "18446744073709551615\n", "port_rcv_data_64": "1\n", "port_xmit_packets": "25\n",
		"port_xmit_wait": "N/A (no PMA)\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	got := map[string]counterRow{}
	for _, c := range sysfsCounters(dir, "mlx5_0", 1, "counters") {
		got[c.Name] = c
	}
	require.Len(t, got, 4)
	require.Equal(t, counterRow{"mlx5_0", 1, "port_xmit_data", 100, "bytes", "counters"}, got["port_xmit_data"])
	require.EqualValues(t, 4, got["port_rcv_data_64"].Value)
	require.EqualValues(t, uint64(1<<64-1), got["port_rcv_data"].Value, "a counter at its end stays there")
	require.Equal(t, counterRow{"mlx5_0", 1, "port_xmit_packets", 25, "", "counters"}, got["port_xmit_packets"])
}

func TestNonzeroIsABoolean(t *testing.T) {
	for args, want := range map[string]bool{"": false, "-nonzero": true, "-nonzero=true": true, "-nonzero=false": false} {
		var list []string
		if args != "" {
			list = []string{args}
		}
		_, nonzero, err := counterFlags(list)
		require.NoError(t, err, args)
		require.Equal(t, want, nonzero, args)
	}
	_, _, err := counterFlags([]string{"-nonzero=maybe"})
	require.Error(t, err)
}
