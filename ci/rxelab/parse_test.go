package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

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

	o, err = parse([]string{"-clock", "instructions-2ns"})
	require.NoError(t, err)
	require.Equal(t, "tcg", o.accel)
	require.Equal(t, 1, o.smp)

	for _, bad := range []string{"-topo ring", "-topo hosts", "-topo hosts=0", "-topo hosts=99", "-topo wire=2", "-clock sun", "-clock instructions-3ns",
		"-accel hax", "-topo hosts=2 -clock instructions", "-topo hosts=2 -clock instructions-2ns", "-nonsense", "-all", "-timeout 0s true",
		"-topo hosts=2 -all x.test -test.cpuprofile=x"} {
		_, err := parse(strings.Fields(bad))
		require.Error(t, err, bad)
	}
}

// What go test tells a test binary to write comes back to the host.
func TestWhatGoTestNamesComesBack(t *testing.T) {
	argv := strings.Fields("/tmp/go-build1/b001/x.test -test.paniconexit0 -test.timeout=10m0s -test.coverprofile=/tmp/w/_cover_.out" +
		" -test.outputdir=/home/me/m -test.cpuprofile=cpu.out --test.trace trace.out -test.gocoverdir=/tmp/w/cov" +
		" -test.fuzz=FuzzX -test.fuzzcachedir=/c/fuzz/m -test.run=-test.memprofile=/etc/x")
	require.Equal(t, []string{"/c/fuzz/m", "/home/me/m/cpu.out", "/home/me/m/p/testdata/fuzz", "/home/me/m/trace.out", "/tmp/w/_cover_.out", "/tmp/w/cov", "/v"},
		written(argv, "/home/me/m/p", []string{"A=1", "GOCOVERDIR=/v"}))
	require.Empty(t, written([]string{"/bin/true", "-x=/etc", "-", ""}, "/d", nil), "an empty argument too")
	require.Equal(t, 11*time.Minute, testLimit(argv))
	require.Zero(t, testLimit([]string{"/bin/true", "-timeout=1s"}))
}

// A test binary shows its goroutines before the lab's own limit, unless the
// caller says otherwise.
func TestTimeLimitOfTests(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"x.test -test.timeout=30m":                                  31 * time.Minute,
		"x.test -test.timeout=1m":                                   defaultTimeout,
		"x.test -test.timeout=10m -test.fuzz=F -test.fuzztime=2h":   131 * time.Minute,
		"x.test -test.timeout=10m -test.fuzz=F -test.fuzztime=900x": 11 * time.Minute,
		"-timeout 25s x.test -test.timeout=1m":                      25 * time.Second,
		"sleep 5":                                                   defaultTimeout,
	} {
		o, err := parse(strings.Fields(args))
		require.NoError(t, err)
		require.Equal(t, want, o.timeout, args)
	}
}

func TestDebianChoosesKernelAndSystem(t *testing.T) {
	for args, kernel := range map[string]string{"-debian 12": "6.1", "-debian 13": "6.12", "-debian 13 -kernel 6.1": "6.1", "-kernel 6.12": "6.12"} {
		o, err := parse(strings.Fields(args))
		require.NoError(t, err)
		require.Equal(t, kernel, o.kernel, args)
	}
	_, err := parse(strings.Fields("-debian 11"))
	require.ErrorContains(t, err, "12 and 13")
}

func TestEnvironment(t *testing.T) {
	host := []string{"PATH=/bin", "HOME=/h", "MY_A=1", "MY_B=2=3", "OTHER=\xff"}
	require.Equal(t, append(host[:5:5], "MY_A=9"), environ(host, false, []string{"MY_A=9"}))
	require.Equal(t, []string{"PATH=/bin", "HOME=/h", "MY_A=1", "MY_B=2=3", "X="}, environ(host, true, []string{"MY_*", "X="}))
	require.Equal(t, []string{"PATH=/bin", "HOME=/h", "OTHER=\xff"}, environ(host, true, []string{"OTHER", "NONE"}))
}

func TestPrefixKeepsLinesWhole(t *testing.T) {
	var out bytes.Buffer
	o := newOutput("standard output", &out, func(err error) { t.Error(err) })
	o.prefix = "[1] "
	r, w := io.Pipe()
	go o.copy(r)
	for _, s := range []string{"he", "llo\nwor", "ld\n", "\n", "no end"} {
		_, err := w.Write([]byte(s))
		require.NoError(t, err)
	}
	require.NoError(t, o.wait(t.Context(), 19))
	require.Equal(t, "[1] hello\n[1] world\n[1] \n[1] no end\n", out.String())

	// When the time is over, what there is of a line may tell why.
	_, err := w.Write([]byte("waiting for "))
	require.NoError(t, err)
	_, err = w.Write(nil) // until the other end reads again
	require.NoError(t, err)
	late, cancel := context.WithCancelCause(t.Context())
	cancel(errTimeout)
	require.ErrorIs(t, o.wait(late, rest), errTimeout)
	require.True(t, strings.HasSuffix(out.String(), "[1] waiting for \n"), out.String())
}

// A stream that ends early has lost something, and a reader that cannot take it
// is an error.
func TestOutputThatIsLost(t *testing.T) {
	o := newOutput("standard output", io.Discard, func(err error) { t.Error(err) })
	o.copy(strings.NewReader("12345"))
	require.NoError(t, o.wait(t.Context(), 5))
	require.ErrorContains(t, o.wait(t.Context(), 8), "3 of 8 bytes were lost")

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	var failed error
	o = newOutput("standard output", full, func(err error) { failed = err })
	o.copy(strings.NewReader("12345"))
	require.ErrorIs(t, failed, syscall.ENOSPC)

	o = newOutput("standard output", io.Discard, func(err error) { t.Error(err) })
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errTimeout) })
	require.ErrorIs(t, o.wait(ctx, 1), errTimeout)
}

func TestKernelComplaintsAreFound(t *testing.T) {
	log := "[ 1.0] fine\n[ 2.0] BUG: kernel NULL pointer dereference\n[ 2.1] trace\n[ 2.2] ---[ end trace 0 ]---\n[ 2.3] fine\n" +
		"[ 3.0] WARNING: CPU: 0 PID: 7 at x.c:1 f\n[ 3.1] refcount_t: underflow; use-after-free.\n[ 4.0] ok\n" +
		"[ 5.0] INFO: task x:7 blocked for more than 120 seconds.\n"
	got := complaints([]byte(log))
	require.Len(t, got, 3)
	require.Equal(t, "[ 2.0] BUG: kernel NULL pointer dereference\n[ 2.1] trace\n[ 2.2] ---[ end trace 0 ]---", got[0])
	require.Contains(t, got[1], "use-after-free")
	require.Contains(t, complaints([]byte("[ 1.0] kernel BUG at mm/slub.c:432!\n[ 1.1] Oops: 0000\n"))[0], "slub.c")
	require.Empty(t, complaints([]byte("debugfs: all fine\nrcu: Hierarchical SRCU implementation.\n")))
}
