package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const status = "Name:\trdmactl\nTgid:\t4711\nPid:\t4712\nCapEff:\t0000000000004000\nCapBnd:\t0000000000000000\n"

func TestParse(t *testing.T) {
	require.Equal(t, "4711", statusField(status, "Tgid"))
	require.Empty(t, statusField(status, "Tgi"))
	require.Empty(t, statusField("", "Tgid"))
	require.True(t, hasCapability(status, 14))
	require.False(t, hasCapability(status, 13))
	require.False(t, hasCapability("CapEff:\tzz\n", 14))
	require.False(t, hasCapability("", 14))
	require.True(t, firstUserNamespace("         0          0 4294967295\n"))
	require.False(t, firstUserNamespace("         0       1000          1\n"))
	require.False(t, firstUserNamespace(""))
	id, ok := pciID("0x15b3\n")
	require.True(t, ok)
	require.EqualValues(t, 0x15b3, id)
	for _, s := range []string{"", "15b3", "0x", "0xg", "0x112345678"} {
		_, ok = pciID(s)
		require.False(t, ok, s)
	}
}

// FuzzParse: files of sysfs and proc may hold anything.
func FuzzParse(f *testing.F) {
	for _, s := range []string{status, "12\n", "0x15b3\n", "0 0 4294967295\n", "::::\n\n", "CapEff:\t-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_ = hasCapability(s, 14)
		_ = firstUserNamespace(s)
		_, _ = pciID(s)
		if v := statusField(s, "Tgid"); strings.ContainsAny(v, "\n") {
			t.Fatalf("more than a line: %q", v)
		}
		var tb table
		tb.row(s)
		var b strings.Builder
		if err := tb.write(&b); err != nil || strings.Count(b.String(), "\n") != 1 {
			t.Fatalf("%q is not one row: %q, %v", s, b.String(), err)
		}
	})
}
