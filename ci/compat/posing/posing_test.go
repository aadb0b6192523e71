package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	for line, want := range map[string]map[string]any{
		"-l 127.0.0.1 -p 31000 -U 0 -u root":       {"gateway.listen": "127.0.0.1:31000", "memory": "64MiB"},
		"-m 3 -I 512k -o relaxed_privileges":       {"memory": "3MiB", "max_value": 512 << 10},
		"-vv -c 20 -o idle_timeout=3 -Y /t/auth":   {"gateway.connections": 20, "gateway.idle": "3s", "gateway.users": "/t/auth"},
		"-R 500 -t 32 -M -A -C -p5 --unknown -I 9": {"gateway.listen": "127.0.0.1:5", "max_value": 9},
	} {
		c, err := config(strings.Fields(line))
		require.NoError(t, err)
		for k, v := range want {
			if name, of := strings.CutPrefix(k, "gateway."); of {
				require.Equal(t, v, c["gateway"].(map[string]any)[name], line)
			} else {
				require.Equal(t, v, c[k], line)
			}
		}
	}
	_, err := config([]string{"-I", "x"})
	require.Error(t, err)
}
