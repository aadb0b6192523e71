package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlagsEndAtTheCommand(t *testing.T) {
	o, err := parse(strings.Fields("-topo hosts=3 -kernel 6.12 -env A=1 -env B=2 ./x.test -test.v -topo wire"))
	require.NoError(t, err)
	require.Equal(t, strings.Fields("./x.test -test.v -topo wire"), o.argv)
	require.Equal(t, "hosts", o.topo)
	require.Equal(t, 3, o.hosts)
	require.Equal(t, []string{"A=1", "B=2"}, o.env)
	require.Equal(t, 1, o.smp, "one CPU each with several hosts")

	o, err = parse([]string{"-clock", "instructions"})
	require.NoError(t, err)
	require.Equal(t, "tcg", o.accel)
	require.Equal(t, 1, o.smp)

	for _, bad := range []string{"-topo ring", "-topo hosts", "-topo hosts=0", "-topo hosts=99", "-topo wire=2", "-clock sun",
		"-accel hax", "-topo hosts=2 -clock instructions", "-nonsense"} {
		_, err := parse(strings.Fields(bad))
		require.Error(t, err, bad)
	}
}

func TestFoldersThatGoTestNamesAreShared(t *testing.T) {
	dir := t.TempDir()
	work := filepath.Join(dir, "go-build123", "b001")
	out := filepath.Join(dir, "out")
	require.NoError(t, os.MkdirAll(work, 0o755))
	require.NoError(t, os.MkdirAll(out, 0o755))
	argv := []string{filepath.Join(work, "x.test"), "-test.paniconexit0", "-test.testlogfile=" + filepath.Join(work, "testlog.txt"),
		"-test.coverprofile=" + filepath.Join(out, "cover.out"), "-test.outputdir=" + out, "-test.run=-test.outputdir=/etc"}
	require.Equal(t, []string{work, out}, sharedDirs(argv))
	require.Empty(t, sharedDirs([]string{"/bin/true", "-x=/etc"}))
	require.Equal(t, []string{"/a", "/ab"}, outermost([]string{"/a/b", "/ab", "/a", "/a/c/d"}))
}

func TestPrefixKeepsLinesWhole(t *testing.T) {
	var out bytes.Buffer
	p := &prefixer{w: &out, prefix: "[1] "}
	for _, s := range []string{"he", "llo\nwor", "ld\n", "\n"} {
		n, err := p.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
	}
	require.Equal(t, "[1] hello\n[1] world\n[1] \n", out.String())
}

func TestKernelComplaintsAreFound(t *testing.T) {
	log := []byte("[ 1.0] fine\n[ 2.0] BUG: kernel NULL pointer dereference\n[ 3.0] WARNING: CPU: 0 PID: 7 at x.c:1 f\n[ 4.0] ok\n")
	require.Len(t, oopses(log), 2)
	require.Empty(t, oopses([]byte("debugfs: all fine\n")))
}
