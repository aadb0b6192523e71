package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// in makes a module in which every job can run, and a runner in it. The program that
// stands for the go command prints what is in the file "out".
func in(t *testing.T, out ...string) *runner {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("go.mod", nil, 0o644))
	for i, o := range out {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "out"+string(rune('1'+i))), []byte(o), 0o644))
	}
	// Each call prints the next file, the last one for ever, and fails if that says so.
	const program = `#!/bin/sh
n=$(cat n 2>/dev/null || echo 1)
[ -e out$n ] || n=$((n-1))
echo $((n+1)) >n
echo "$@" >>calls
cat out$n
! grep -q '"Action":"fail"' out$n
`
	require.NoError(t, os.WriteFile("go", []byte(program), 0o755))
	t.Setenv("GO", filepath.Join(dir, "go"))
	r, err := newRunner(options{slots: 2})
	require.NoError(t, err)
	return r
}

const (
	passes = `{"Action":"run","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA"}
{"Action":"pass","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA","Elapsed":0.1}
{"Action":"pass","Package":"github.com/goverbs/goverbs/verbs","Elapsed":0.2}
`
	fails = `{"Action":"run","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA"}
{"Action":"run","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA/sub"}
{"Action":"output","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA/sub","Output":"why\n"}
{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA/sub","Elapsed":0.1}
{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA","Elapsed":0.1}
{"Action":"run","Package":"github.com/goverbs/goverbs/verbs","Test":"TestB"}
{"Action":"pass","Package":"github.com/goverbs/goverbs/verbs","Test":"TestB","Elapsed":0.1}
{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs","Elapsed":0.2}
`
)

// all runs one job of go test and what is to be repeated of it.
func all(t *testing.T, r *runner) error {
	t.Helper()
	j := &job{name: "x", tests: &tests{packages: words("./verbs")}}
	r.runAll(t.Context(), []*job{j})
	r.repeatFailed(t.Context())
	return r.report(0)
}

func calls(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("calls")
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestPassingTestsRunOnce(t *testing.T) {
	require.NoError(t, all(t, in(t, passes)))
	require.Len(t, calls(t), 1)
	b, err := os.ReadFile("build/flaky.txt")
	require.NoError(t, err)
	require.Empty(t, b)
}

// What fails is run once more, alone, and the list has it if it passes then.
func TestFailuresAreRepeatedOnce(t *testing.T) {
	require.NoError(t, all(t, in(t, fails, passes)))
	c := calls(t)
	require.Len(t, c, 2)
	require.Contains(t, c[1], "-run=^(TestA)$ ")
	b, err := os.ReadFile("build/flaky.txt")
	require.NoError(t, err)
	require.Equal(t, "github.com/goverbs/goverbs/verbs TestA (x)\n", string(b))
	b, err = os.ReadFile("build/test-times.json")
	require.NoError(t, err)
	require.Contains(t, string(b), `"package": "github.com/goverbs/goverbs/verbs"`)
}

func TestTwoFailuresFail(t *testing.T) {
	require.ErrorContains(t, all(t, in(t, fails, fails)), "failed: x")
	require.Len(t, calls(t), 2)
}

// A soak builds once, and then runs the tests as often as it is told to.
func TestSoakCountsFailures(t *testing.T) {
	r := in(t, passes, fails, passes)
	require.NoError(t, os.Mkdir("verbs", 0o755))
	build := &job{name: "build", first: true, command: []string{"sh", "-c", "echo 'cd .. && exec ./go' >build/test2json && chmod +x build/test2json"}}
	j := &job{name: "x", needs: words("build"), slots: 1, tests: &tests{packages: words("./verbs"), programs: flavor{name: "plain"}}}
	r.o.soak = 3
	require.ErrorContains(t, r.soak(t.Context(), []*job{build, j}), "1 tests or jobs failed at least once")
	n, err := os.ReadFile("n")
	require.NoError(t, err)
	require.Equal(t, "4\n", string(n), "three calls")
}

// Torture draws rounds until its time is over. With the seed of a round, a run begins with that round.
func TestTortureRepeatsARound(t *testing.T) {
	torture := func(seed uint64) ([]string, error) {
		r := in(t, passes, fails, passes)
		require.NoError(t, os.Mkdir("verbs", 0o755))
		require.NoError(t, os.MkdirAll("build/tests/plain", 0o755))
		require.NoError(t, os.WriteFile("build/tests/plain/verbs.test", []byte("#!/bin/sh\necho TestDies\n"), 0o755))
		build := &job{name: "build", first: true, command: []string{"sh", "-c", `echo 'cd .. && exec ./go $GOVERBS_SEED $PLACE $SIMHCA_SEED "$@"' >build/test2json && chmod +x build/test2json`}}
		jobs := []*job{build}
		for _, place := range words("here there") {
			jobs = append(jobs, &job{name: place, needs: words("build"), slots: 1, tests: &tests{packages: words("./verbs"), env: []string{"PLACE=" + place}, programs: flavor{name: "plain"}}})
		}
		jobs = append(jobs, &job{name: "selects", tests: &tests{packages: words("./verbs"), args: words("-test.run=TestOther"), programs: flavor{name: "plain"}}})
		r.o.torture, r.o.seed = time.Minute, seed
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		file := filepath.Join(r.root, "calls")
		go func() { // ends the torture after three rounds
			for ctx.Err() == nil {
				if b, _ := os.ReadFile(file); strings.Count(string(b), "\n") >= 3 {
					cancel()
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		err := r.torture(ctx, jobs)
		return calls(t), err
	}
	first, err := torture(7)
	require.ErrorContains(t, err, "1 rounds failed")
	require.True(t, strings.HasPrefix(first[0], "7 "), first[0])
	require.Contains(t, first[0], "-test.shuffle=7")
	round := words(first[1])
	seed, err := strconv.ParseUint(round[0], 10, 64)
	require.NoError(t, err)
	again, err := torture(seed)
	require.Error(t, err)
	require.Equal(t, round[0], round[2], "the simulated devices have the same seed")
	require.Equal(t, round[:2], words(again[0])[:2], "seed and job")
	require.Equal(t, words(first[2])[:2], words(again[1])[:2], "and what follows")
	require.NotContains(t, strings.Join(first, "\n"), "TestOther", "a job that selects its tests is not drawn")
}

// State machines, and tests that print a seed, are never run again.
func TestWhatChanceDoesNotTouchIsNotRepeated(t *testing.T) {
	require.Error(t, all(t, in(t, strings.ReplaceAll(fails, "goverbs/verbs", "goverbs/dc/internal/session"), passes)))
	require.Len(t, calls(t), 1)
	require.Error(t, all(t, in(t, strings.Replace(fails, "why", "GOVERBS_SEED=7 repeats this", 1), passes)))
	require.Len(t, calls(t), 1)
}

// A program that crashed has not run the tests behind the crash.
func TestCrashesAreRepeatedWhole(t *testing.T) {
	for _, out := range []string{
		strings.Replace(fails, "why", "panic: oops", 1),
		`{"Action":"run","Package":"github.com/goverbs/goverbs/verbs","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs"}` + "\n",
		`{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs"}` + "\n",
	} {
		require.NoError(t, all(t, in(t, out, passes)))
		require.Contains(t, calls(t)[1], "./verbs")
		require.NotContains(t, calls(t)[1], "-run=")
	}
}

// What does not compile fails, and is not tried again.
func TestBuildsThatFail(t *testing.T) {
	const broken = `{"ImportPath":"github.com/goverbs/goverbs/verbs","Action":"build-output","Output":"x.go:1: oops\n"}
{"Action":"start","Package":"github.com/goverbs/goverbs/verbs"}
{"Action":"fail","Package":"github.com/goverbs/goverbs/verbs","FailedBuild":"github.com/goverbs/goverbs/verbs"}
`
	require.Error(t, all(t, in(t, broken)))
	require.Len(t, calls(t), 1)
}

// Programs of which nothing is heard have failed, and so has a run that prints nothing.
func TestSilenceIsNoSuccess(t *testing.T) {
	r := in(t)
	require.NoError(t, os.MkdirAll("build", 0o755))
	require.NoError(t, os.MkdirAll("verbs", 0o755))
	require.NoError(t, os.WriteFile("build/test2json", []byte("#!/bin/sh\n"), 0o755))
	j := &job{name: "x", tests: &tests{packages: words("./verbs"), programs: flavor{name: "plain"}}}
	r.runAll(t.Context(), []*job{j})
	r.repeatFailed(t.Context())
	require.ErrorContains(t, r.report(0), "failed: x")
}

func TestCommandsThatFail(t *testing.T) {
	r := in(t)
	bad := &job{name: "bad", command: words("false")}
	behind := &job{name: "behind", needs: words("bad"), command: words("touch ran")}
	good := &job{name: "good", command: words("touch good")}
	r.runAll(t.Context(), []*job{bad, behind, good})
	r.repeatFailed(t.Context())
	require.ErrorContains(t, r.report(0), "failed: bad, behind")
	require.NoFileExists(t, "ran")
	require.FileExists(t, "good")
}

// What a command started and left behind ends with it.
func TestNothingIsLeftRunning(t *testing.T) {
	r := in(t)
	r.runAll(t.Context(), []*job{{name: "x", command: []string{"sh", "-c", "sleep 1000 & echo $! >pid"}}})
	pid, err := os.ReadFile("pid")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	}, 10e9, 10e6)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, r.runCommand(ctx, &job{command: words("sleep 1000")}, io.Discard))
}

// Jobs that keep the host busy run one at a time, and those that wait as far as there are
// places; a job starts when those that it needs have ended.
func TestRunnable(t *testing.T) {
	host, guest, wide := &job{name: "host"}, &job{name: "guest", slots: 1}, &job{name: "wide", slots: 2, needs: words("host")}
	list := []*job{host, wide, guest}
	none := map[string]bool{}
	require.Equal(t, 0, runnable(list, none, false, 2, 2))
	require.Equal(t, 2, runnable(list, none, true, 2, 2))
	require.Equal(t, -1, runnable(list, none, true, 0, 2))
	require.Equal(t, 1, runnable(list[1:2], map[string]bool{"host": true}, true, 2, 2)+1)
	require.Equal(t, 2, runnable(list, map[string]bool{"host": true}, true, 1, 2))
	require.Equal(t, 0, runnable([]*job{wide}, map[string]bool{"host": true}, true, 1, 1), "more places than there are")
}
