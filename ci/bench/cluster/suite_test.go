package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
)

// Each row is judged by the wall clock.
func TestRows(t *testing.T) {
	targets := map[string]string{}
	for _, b := range Suite(harness.Env{Clock: harness.Wall}) {
		require.Equal(t, []string{harness.Wall}, b.Judged, b.Name)
		for _, f := range b.Figures {
			targets[f.Name] = f.Target.String()
		}
	}
	require.Equal(t, map[string]string{
		"takeover": "<= 4.6", "takeover_beat": "", "takeover_leader_dead": "<= 5.8", "move_misses": "<= 0", "move_failed": "<= 0", "move_p99": "<= 50", "move_rate": ">= 0.8",
		"etcd_stopped_misses": "<= 0", "etcd_stopped_failed": "<= 0", "three_servers": ">= 2.7",
	}, targets)
}

var errTest = errors.New("it failed")

// Operations count where they end in the time, and for the percentile where they overlap it.
func TestLoad(t *testing.T) {
	l := &load{stop: func() {}}
	for i := range 200 {
		l.list = append(l.list, done{key: i % 2, begun: time.Duration(i) * 10 * time.Millisecond, took: time.Duration(1+4*(i%2)) * time.Millisecond})
	}
	require.InDelta(t, 100, l.rate(0, 2*time.Second), 0.1)
	p99, err := l.p99(0, 2*time.Second, func(k int) bool { return k == 1 })
	require.NoError(t, err)
	require.InDelta(t, 5, p99, 0.01)
	_, err = l.p99(0, 100*time.Millisecond, func(int) bool { return true })
	require.ErrorContains(t, err, "too few")
	l.list[3].miss, l.list[4].err = true, errTest
	misses, failed, err := l.end()
	require.Equal(t, [2]int{1, 1}, [2]int{misses, failed})
	require.ErrorIs(t, err, errTest)
}
