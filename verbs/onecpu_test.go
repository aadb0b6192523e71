//go:build linux

package verbs_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// On one CPU a READ is waited for by giving up the CPU. Sleeping until an event
// would double its cost.
func TestReadsOnOneCPU(t *testing.T) {
	const reads = 300
	n := int64(reads)
	for tries := 0; tries < 3 && n >= reads/4; tries++ { // what else the host does for 2 ms makes READs sleep
		n = sleepsOnOneCPU(t, reads)
	}
	require.Less(t, n, int64(reads/4))
}

// Beside a program that computes some READs sleep, since the CPU comes back late: hardly any
// would if each wait gave it up (at most 2 of 300 in 40 runs). How many depends on when the
// program's turns begin (51 to 133 in 80 runs).
func TestReadsOnOneBusyCPU(t *testing.T) {
	if !lab.In() {
		t.Skip("for rxe: others have the answer before a CPU that was given up could come back")
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", "echo; while :; do :; done")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	_, err = out.Read(make([]byte, 1)) // it may take longer to start than all READs
	require.NoError(t, err)
	const reads = 300
	n := sleepsOnOneCPU(t, reads)
	var u unix.Utsname
	require.NoError(t, unix.Uname(&u))
	if strings.HasPrefix(unix.ByteSliceToString(u.Release[:]), "6.1.") {
		t.Skip("rxe of 6.1 has the answer before the post returns")
	}
	require.Greater(t, n, int64(reads/15))
}

// sleepsOnOneCPU is how often the thread that READs sleeps meanwhile.
func sleepsOnOneCPU(t *testing.T, reads int) int64 {
	t.Helper()
	if runtime.NumCPU() > 1 {
		t.Skip("this machine has more than one CPU: see rxelab's -smp")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r := newRequester(t, a, verbs.RequesterConfig{})
	read := func() {
		require.NoError(t, r.Read(t.Context(), b.MR.Region().At(0), a.MR.SGE(0, 64)))
	}
	read()
	var before, after unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &before))
	for range reads {
		read()
	}
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &after))
	t.Logf("%d READs, %d sleeps", reads, after.Nvcsw-before.Nvcsw)
	return after.Nvcsw - before.Nvcsw
}
