package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListIsWhole(t *testing.T) {
	l, err := parseList(skippedList)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, e := range l {
		require.Contains(t, devices, e.device)
		require.False(t, seen[e.device+e.why], "%s twice", e.why)
		seen[e.device+e.why] = true
		for release := range e.number {
			require.Contains(t, usual, release)
		}
	}
}

func TestParseList(t *testing.T) {
	l, err := parseList("# about\n\nmlx5 | bookworm 2, trixie 3 | no X | X is not simulated\nefa | host | no Y | needs Y\nefa|fails|a.b|Z\n")
	require.NoError(t, err)
	require.Equal(t, list{
		{device: "mlx5", number: map[string]int{"bookworm": 2, "trixie": 3}, why: "no X"},
		{device: "efa", why: "no Y"},
		{device: "efa", why: "a.b", fails: true},
	}, l)
	for _, bad := range []string{"mlx5 | 2 | no X", "mlx5 | bookworm | no X | why", "mlx5 | host | no X |", "mlx5 | bookworm two | no X | why"} {
		_, err := parseList(bad)
		require.Error(t, err, bad)
	}
}

func TestJudge(t *testing.T) {
	l, err := parseList("d | r 1 | no X | -\nd | host | no Y | -\nd | fails | bad | -\ne | r 7 | no X | -\n")
	require.NoError(t, err)
	good := []outcome{{"ok", "a", ""}, {"skipped", "b", "no X"}, {"failed", "bad", "oops"}}
	require.Empty(t, l.judge("d", "r", good))
	require.Empty(t, l.judge("d", "r", append(good, outcome{"skipped", "c", "no Y"})))
	for want, all := range map[string][]outcome{
		"no test has passed":                        good[1:],
		"0 tests are skipped, not 1: no X":          {good[0], good[2]},
		"2 tests are skipped, not 1: no X":          append(good, outcome{"skipped", "c", "no X"}),
		"1 tests are skipped, and not listed: no Z": append(good, outcome{"skipped", "c", "no Z"}),
		"c fails: oops":                             append(good, outcome{"failed", "c", "oops"}),
		"bad is listed, and does not fail":          good[:2],
	} {
		require.Equal(t, []string{want}, l.judge("d", "r", all))
	}
	require.Equal(t, []string{"1 tests are skipped, not 0: no X"}, l.judge("d", "another", good))
}
