package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKnownListParses(t *testing.T) {
	known, err := parseKnown(knownList)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, p := range programs {
		require.False(t, names[p.name])
		names[p.name] = true
	}
	for _, k := range known {
		require.True(t, names[k.program], k.program)
		require.NotEmpty(t, k.reason)
	}
	for _, bad := range []string{"php | get", "php | ( | no pattern"} {
		_, err := parseKnown(bad)
		require.Error(t, err)
	}
}

func TestJudge(t *testing.T) {
	d, err := parseKnown("# a comment\nphp | get.* | why\n!php | slow | why\nperl | x | why\n")
	require.NoError(t, err)
	require.True(t, d.skips("php", "slow"))
	require.False(t, d.skips("php", "get"))
	require.Equal(t, verdict{passed: 1, known: 2}, d.judge("php", []outcome{{"a", ""}, {"get", "x"}, {"getMulti", "y"}}))
	v := d.judge("php", []outcome{{"a", ""}, {"set", "x"}})
	require.Equal(t, verdict{passed: 1, wrong: []string{"set: x", "^(?:get.*)$ is in known.txt, and nothing of that fails"}}, v)
	require.Equal(t, []string{"no test has passed"}, d.judge("node", nil).wrong)
}

func TestParseTAP(t *testing.T) {
	const out = "1..4\nok 1 - a\nnot ok 2 - b\n# Failed\nok 3\nnot ok 4 - c # TODO later\nok 5 - b\n"
	require.Equal(t, []outcome{{"t: a", ""}, {"t: b", "not ok"}, {"t: #3", ""}, {"t: c # TODO later", ""}}, parseTAP([]byte(out), "t: ", errors.New("exit 1")))
	require.Equal(t, []outcome{{"a", ""}, {"(end)", "killed"}}, parseTAP([]byte("ok 1 - a\n"), "", errors.New("killed")), "it has not run to its end")
}

func TestParseOthers(t *testing.T) {
	all, err := parseJUnit([]byte(`<testsuites><testsuite><testcase classname="a.test_b" name="c[x]"/><testcase classname="b" name="d"><failure message="no"/></testcase></testsuite></testsuites>`))
	require.NoError(t, err)
	require.Equal(t, []outcome{{"test_b.c[x]", ""}, {"b.d", "no "}}, all)
	all, err = parseGo([]byte(`{"Action":"run","Test":"A"}` + "\n" + `{"Action":"pass","Test":"A"}` + "\n" + `{"Action":"fail","Test":"B"}` + "\n" + `{"Action":"fail"}`))
	require.NoError(t, err)
	require.Equal(t, []outcome{{"A", ""}, {"B", "failed"}}, all)
	require.Equal(t, []outcome{{"ascii get", ""}, {"ascii cas", "FAIL"}}, parseCapable([]byte("ascii get                  [pass]\nascii cas    [FAIL]\nAll tests passed\n")))
}
