//go:build linux

package lab_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

func TestHostsAreKilledAndComeBack(t *testing.T) {
	lab.RequireTopology(t, "hosts")
	if lab.Hosts() < 2 {
		t.Skip("needs hosts=2")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	other := lab.Host(1)
	r, err := other.Exec(ctx, "sh", "-c", "hostname; echo oops >&2; echo $LAB_HOST > /tmp/mark; exit 3")
	require.NoError(t, err)
	require.Equal(t, "lab1", strings.TrimSpace(string(r.Stdout)))
	require.Equal(t, "oops", strings.TrimSpace(string(r.Stderr)))
	require.Equal(t, 3, r.Code)

	// A connection to it dies with it.
	addr := lab.Addrs()[1].String()
	reachable := func() bool {
		conn, err := net.DialTimeout("tcp", addr+":9", 300*time.Millisecond)
		if err == nil {
			conn.Close()
			return true
		}
		return strings.Contains(err.Error(), "refused") // its kernel responds
	}
	require.Eventually(t, reachable, time.Minute, 100*time.Millisecond)
	require.NoError(t, other.Kill(ctx))
	require.False(t, reachable())
	_, err = other.Exec(ctx, "true")
	require.Error(t, err)
	require.NoError(t, other.Start(ctx))
	require.Eventually(t, reachable, time.Minute, 100*time.Millisecond)
	r, err = other.Exec(ctx, "cat", "/tmp/mark")
	require.NoError(t, err)
	require.NotZero(t, r.Code, "its memory is gone")

	require.Error(t, lab.Host(0).Kill(ctx), "not itself")
	require.Error(t, lab.Host(9).Kill(ctx))
	require.Error(t, other.Start(ctx), "it runs already")
}
