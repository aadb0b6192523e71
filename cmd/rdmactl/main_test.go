package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain makes the test program rdmactl itself when a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		setLimits()
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const asProgram = "RDMACTL_TEST_PROGRAM"

// ctl runs one command line.
func ctl(t testing.TB, line string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), strings.Fields(line), &out, &errs)
	return status, out.String(), errs.String()
}

func TestCtlUsage(t *testing.T) {
	for line, want := range map[string]struct {
		status         int
		stdout, stderr string
	}{
		"":                     {2, "", "usage: rdmactl [-json] COMMAND"},
		"help":                 {0, "usage: rdmactl [-json] COMMAND", ""},
		"-version":             {0, "rdmactl (devel), go1.", ""},
		"-h":                   {0, "usage: rdmactl [-json] COMMAND", ""},
		"--help":               {0, "usage: rdmactl [-json] COMMAND", ""},
		"nosuch":               {2, "", `no command "nosuch"`},
		"path":                 {2, "", "an argument is missing"},
		"path -h":              {0, "usage: rdmactl path [-json] [-from ADDR] ADDR", ""},
		"path x":               {2, "", `"x" is not an IP address`},
		"path 10.0.0.1:74":     {2, "", "is not an IP address: give one without a port"},
		"path -from [::1]:1 y": {2, "", "is not an IP address: give one without a port"},
		"path 10.0.0.1 y":      {2, "", `unexpected arguments ["y"]`},
		"path -from z 1.2.3.4": {2, "", "-from"},
		"doctor -wrong":        {2, "", "not defined: -wrong"},
	} {
		status, stdout, stderr := ctl(t, line)
		require.Equal(t, want.status, status, line)
		require.Contains(t, stdout, want.stdout, line)
		require.Contains(t, stderr, want.stderr, line)
		if want.stdout == "" {
			require.Empty(t, stdout, line)
		}
		if want.stderr == "" {
			require.Empty(t, stderr, line)
		}
	}
}

func TestJSONBeforeAndAfterTheCommand(t *testing.T) {
	for _, line := range []string{"doctor -json", "-json doctor", "--json doctor"} {
		status, stdout, stderr := ctl(t, line)
		require.NotEqual(t, 2, status, "%s: %s", line, stderr)
		require.True(t, json.Valid([]byte(stdout)), "%s: %s", line, stdout)
	}
	status, _, stderr := ctl(t, "-json")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "usage")
}

func TestCtlTable(t *testing.T) {
	var tb table
	tb.row("NAME", "VALUE", "")
	tb.row("a\tb\nc", 12, "x")
	tb.row("", "long value", 0)
	var b bytes.Buffer
	require.NoError(t, tb.write(&b))
	require.Equal(t, "NAME   VALUE       -\na?b?c  12          x\n-      long value  0\n", b.String())
}

func TestCtlEmptyResults(t *testing.T) {
	for _, a := range []result{deviceList{}, featureList{}} {
		var text, js bytes.Buffer
		require.NoError(t, show(&text, a, false))
		require.Regexp(t, "^no ", text.String(), "it says that there is nothing")
		require.NoError(t, show(&js, a, true))
		require.JSONEq(t, "[]", js.String())
	}
}

func TestCtlReport(t *testing.T) {
	r := report{diagnose(healthy()), healthy()}
	var b bytes.Buffer
	require.NoError(t, show(&b, r, false))
	require.Equal(t, "devices: 1, problems: 0, advice: 0\n", b.String())
	b.Reset()
	require.NoError(t, show(&b, r, true))
	var back report
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, r, back, "facts survive a report from elsewhere")
}
