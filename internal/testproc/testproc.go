//go:build linux

package testproc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Awaited reports whether other processes wait for a stopped one, as those with simulated devices may: see
// cgo/simhca's function, which tests on these put here.
var Awaited = func(int) bool { return false }

// Stop stops a process by SIGSTOP, and returns when no thread of it runs any more: the kernel stops a thread when that
// is scheduled next, and until then the process may execute requests. Where others would wait for the process, see
// [Awaited], it goes on, and is stopped elsewhere.
func Stop(t testing.TB, p *os.Process) {
	t.Helper()
	for stop(t, p); Awaited(p.Pid); stop(t, p) {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

func stop(t testing.TB, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	tasks := fmt.Sprintf("/proc/%d/task/*/stat", p.Pid)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(tasks)
		switch {
		case err != nil || len(threads) == 0:
			t.Fatalf("process %d has no threads: %v", p.Pid, err)
		case time.Now().After(end):
			t.Fatalf("process %d does not stop", p.Pid)
		case !slices.ContainsFunc(threads, runs):
			return
		}
	}
}

// runs reports whether the thread of /proc/PID/task/TID/stat is not stopped.
func runs(stat string) bool {
	b, err := os.ReadFile(stat)
	_, state, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && !strings.HasPrefix(state, "T")
}
