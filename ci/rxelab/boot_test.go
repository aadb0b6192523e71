//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/internal/cache"
	guests "github.com/goverbs/goverbs/ci/lab"
)

// launcher names a built rxelab, given by make test; booting takes ten seconds
// a time, so plain "go test" leaves these tests out.
func launcher(t *testing.T) string {
	path := os.Getenv("RXELAB")
	if path == "" {
		t.Skip("boots virtual machines: set RXELAB to a built rxelab, as make test does")
	}
	t.Parallel()
	return path
}

// inside tells this binary, run in a guest, what to do there.
const inside = "RXELAB_TEST_INSIDE"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == asQEMU {
		beQEMU(os.Args[1:])
	}
	if os.Getenv(asLauncher) != "" {
		os.Exit(launch(os.Args[1:], func() error { return nil }))
	}
	if what := os.Getenv(inside); what != "" && guests.In() {
		if err := insides[what](context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	os.RemoveAll(sharedCache())
	os.Exit(code)
}

var insides = map[string]func(context.Context) error{
	"panic of host 1": func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if _, err := guests.Host(1).Exec(ctx, "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 100"); err == nil {
			return errors.New("host 1 goes on")
		}
		return nil
	},
	"complaint of host 1, killed and started": func(ctx context.Context) error {
		_, err := guests.Host(1).Exec(ctx, "sh", "-c", "echo '<4>WARNING: CPU: 0 PID: 7 at drivers/x.c:1 f+0x1/0x2' > /dev/kmsg; sleep 1")
		return errors.Join(err, guests.Host(1).Kill(ctx), guests.Host(1).Start(ctx))
	},
}

// labRun is exit status, output and standard error of a run of rxelab.
type labRun struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func newRun(t *testing.T, args ...string) *labRun {
	r := &labRun{cmd: exec.Command(launcher(t), args...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	return r
}

func (r *labRun) exit(t *testing.T, want int) {
	t.Helper()
	err := r.cmd.Wait()
	require.Equal(t, want, r.cmd.ProcessState.ExitCode(), "%v\n%s\n%s", err, &r.stdout, &r.stderr)
}

func (r *labRun) run(t *testing.T, want int) {
	t.Helper()
	require.NoError(t, r.cmd.Start())
	r.exit(t, want)
}

// Arguments, environment, input and output are the command's, byte for byte,
// also for a reader that begins when the command has long ended, and what it leaves behind
// holds nothing up.
func TestEverythingPasses(t *testing.T) {
	dir := t.TempDir()
	r := newRun(t, "-artifacts", dir, "-env", "GREETING=hello", "-keep", filepath.Join(dir, "kept"), "--", "bash", "-c",
		`echo "$GREETING $UNUSUAL $0" >&2; cat > /tmp/in; wc -c < /tmp/in; cat /tmp/in; echo shared > $LAB_ARTIFACTS/file
		mkdir -p `+filepath.Join(dir, "kept/a")+`; echo kept > `+filepath.Join(dir, "kept/a/f")+`; sleep 1000 & printf 'no end'; exit 7`, "\xff\xfe")
	input := make([]byte, 1<<20)
	for i := range input {
		input[i] = byte(rand.Uint32())
	}
	r.cmd.Stdin = bytes.NewReader(input)
	r.cmd.Env = append(os.Environ(), "UNUSUAL=\x80\x81")
	r.cmd.Stdout = nil
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	said := make([]byte, 1)
	_, err = io.ReadFull(out, said)
	require.NoError(t, err)
	time.Sleep(5 * time.Second)
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	r.exit(t, 7)
	require.Equal(t, fmt.Sprintf("%d\n", len(input))+string(input)+"no end", string(append(said, rest...)))
	require.Equal(t, "hello \x80\x81 \xff\xfe\n", r.stderr.String())
	for path, want := range map[string]string{"file": "shared\n", "kept/a/f": "kept\n"} {
		b, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	require.FileExists(t, filepath.Join(dir, "console-0-1.log"))
}

// A hang ends, and a program that can say where it hangs is asked.
func TestTimeLimit(t *testing.T) {
	r := newRun(t, "-topo", "none", "-timeout", "90s", "--", "bash", "-c", "trap 'echo it hangs here' QUIT; while :; do sleep 1; done")
	r.run(t, exitLab)
	require.Contains(t, r.stdout.String(), "it hangs here")
	require.Contains(t, r.stderr.String(), "time limit")
	require.Contains(t, r.stderr.String(), "console of host 0")
}

// The command gets the signal and says how it ends.
func TestSignalsPass(t *testing.T) {
	r := newRun(t, "-topo", "none", "--", "bash", "-c", "trap 'echo ending; exit 9' TERM; echo begun; while :; do sleep 1; done")
	r.cmd.Stdout = nil
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	begun := make([]byte, len("begun\n"))
	_, err = io.ReadFull(out, begun)
	require.NoError(t, err)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	r.exit(t, 9)
	require.Equal(t, "ending\n", string(rest))
}

// Whatever ends the launcher, and whenever, its guests end too; what it cannot
// clear away itself the next one does.
func TestInterruptLeavesNothing(t *testing.T) {
	cacheDir, err := cache.Dir()
	require.NoError(t, err)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		r := &labRun{cmd: exec.Command(launcherOnce(t), "-topo", "none", "--", "sleep", "1000")}
		require.NoError(t, r.cmd.Start())
		pid := r.cmd.Process.Pid
		t.Cleanup(func() { _ = r.cmd.Process.Kill() })
		var guests []int
		// The first launch on a machine makes the guests' root file system before.
		require.Eventually(t, func() bool { guests = children(pid); return len(guests) > 0 }, 5*time.Minute, 20*time.Millisecond)
		require.NoError(t, r.cmd.Process.Signal(sig))
		require.Error(t, r.cmd.Wait())
		for _, g := range guests {
			require.Eventually(t, func() bool { return syscall.Kill(g, 0) != nil }, time.Minute, 20*time.Millisecond, "QEMU is left over")
		}
	}
	_, done, err := cache.RunDir(t.Context(), cacheDir)
	require.NoError(t, err)
	done()
	runs, err := filepath.Glob(filepath.Join(cacheDir, "run", "*"))
	require.NoError(t, err)
	for _, d := range runs { // those of tests beside this one are in use
		_, err := os.Stat(filepath.Join(d, "lock"))
		require.NoError(t, err)
	}
}

func launcherOnce(t *testing.T) string {
	path := os.Getenv("RXELAB")
	if path == "" {
		launcher(t)
	}
	return path
}

// children are the processes that a process has started.
func children(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range lists {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			var n int
			fmt.Sscan(s, &n)
			out = append(out, n)
		}
	}
	return out
}

// Before a guest boots too: here while another process holds the lock.
func TestInterruptWhileWaiting(t *testing.T) {
	dir := t.TempDir()
	unlock, err := cache.Lock(t.Context(), filepath.Join(dir, "linux-6.1.lock"))
	require.NoError(t, err)
	defer unlock()
	r := newRun(t, "true")
	r.cmd.Env = append(os.Environ(), "LAB_CACHE="+dir, "LAB_KERNEL=")
	require.NoError(t, r.cmd.Start())
	time.Sleep(time.Second)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	r.exit(t, exitLab)
	require.Contains(t, r.stderr.String(), "interrupted")

	r = &labRun{cmd: exec.Command(r.cmd.Path, "-timeout", "1s", "true")}
	r.cmd.Stderr = &r.stderr
	r.cmd.Env = append(os.Environ(), "LAB_CACHE="+dir, "LAB_KERNEL=")
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "time limit")
}

// The program is content, and host 1 is dead.
func TestDeadHostIsSeen(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	r := newRun(t, "-topo", "hosts=2", "-env", inside+"=panic of host 1", "--", self)
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "host 1 died")
	require.Contains(t, r.stderr.String(), "Kernel panic")
}

// A complaint of a boot that is over fails the run like any other, and the log
// of each boot is kept.
func TestComplaintIsSeen(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	r := newRun(t, "-topo", "hosts=2", "-artifacts", dir, "-env", inside+"=complaint of host 1, killed and started", "--", self)
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "the kernel of host 1 complains")
	require.Contains(t, r.stderr.String(), "at drivers/x.c:1")
	for _, log := range []string{"console-0-1.log", "console-1-1.log", "console-1-2.log"} {
		require.FileExists(t, filepath.Join(dir, log))
	}
}

// A guest that dies before its init process is booted once more, and that is said.
func TestDeadOnArrival(t *testing.T) {
	r := newRun(t, "true")
	r.cmd.Env = append(os.Environ(), "LAB_KERNEL="+emptyKernel(t), "LAB_CACHE="+t.TempDir())
	r.run(t, exitLab)
	require.Equal(t, 1, strings.Count(r.stderr.String(), "booted once more"), r.stderr.String())
}

// Folders that guests have for themselves, and names with commas in them.
func TestAwkwardPlaces(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "a,b=c d-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), []byte("#!/bin/sh\ncat data; mktemp >&2; echo new > made\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), []byte("seen\n"), 0o644))
	artifacts := filepath.Join(t.TempDir(), "x,y z")
	long := filepath.Join(dir, strings.Repeat("l", 100))
	require.NoError(t, os.MkdirAll(long, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	r := newRun(t, "-artifacts", artifacts, "-keep", filepath.Join(link, "made"), "--", "./prog")
	r.cmd.Dir = link
	r.cmd.Env = append(os.Environ(), "TMPDIR="+long)
	r.run(t, 0)
	require.Equal(t, "seen\n", r.stdout.String())
	require.Contains(t, r.stderr.String(), long)
	b, err := os.ReadFile(filepath.Join(dir, "made"))
	require.NoError(t, err)
	require.Equal(t, "new\n", string(b))
}

// A program that cannot be the init process says so before anything boots.
func TestNeedsToBeStatic(t *testing.T) {
	launcher(t)
	path := filepath.Join(t.TempDir(), "rxelab")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(path, "true").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "CGO_ENABLED=0")
}
