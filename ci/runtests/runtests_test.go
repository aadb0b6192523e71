package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// Each part of what guests leave out is of some test's name.
func TestWhatIsLeftOutExists(t *testing.T) {
	var tests []string
	for _, p := range join(basePackages, hostPackages, systemPackages, cachePackages) {
		files, err := filepath.Glob("../../" + p + "/*_test.go")
		require.NoError(t, err)
		for _, f := range files {
			tests = append(tests, testsIn(t, f)...)
		}
	}
	for _, part := range strings.Split(notOlder+"|"+onRxe+"|"+ownCache, "|") {
		require.True(t, slices.ContainsFunc(tests, regexp.MustCompile(part).MatchString), part)
	}
}

// testsIn returns the names of the tests in a file.
func testsIn(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
			names = append(names, fn.Name.Name)
		}
	}
	return names
}

// What the guests of both kernels leave out of lockoffload and cache runs on simulated devices.
func TestWhatNoGuestRunsIsSimulated(t *testing.T) {
	device := func(pkg string) (tests []string) {
		files, err := filepath.Glob("../../" + pkg + "/*_device_test.go")
		require.NoError(t, err)
		for _, f := range files {
			tests = append(tests, testsIn(t, f)...)
		}
		return tests
	}
	for pkg, patterns := range map[string][2]string{"lockoffload": {notNewer, notLocks}, "cache": {ownCache, notCache}} {
		left, skipped, n := regexp.MustCompile(patterns[0]), regexp.MustCompile(patterns[1]), 0
		for _, name := range device(pkg) {
			if left.MatchString(name) {
				require.False(t, skipped.MatchString(name), "%s of %s runs nowhere", name, pkg)
				n++
			}
		}
		require.Greater(t, n, 10, pkg)
	}
}

// Each package with tests is in one of the unit jobs; machines, which start no goroutines, are in that
// without the race detector.
func TestUnits(t *testing.T) {
	r := &runner{root: "../.."}
	raced, others, err := r.units()
	require.NoError(t, err)
	require.Subset(t, raced, words("./verbs ./srd ./cgo/standin ./ci/bench/internal/harness ./internal/chanmutex"))
	require.Subset(t, others, words("./srd/internal/engine ./dc/internal/session ./cache/internal/wire ./internal/layering"))
	for _, p := range others {
		require.NotContains(t, raced, p)
	}
	require.Greater(t, len(raced)+len(others), 80)
}

// The plan names what exists, each job behind those that it needs, and each package with
// device tests runs on both kernels or is named as one that runs on the newer one.
func TestPlan(t *testing.T) {
	t.Chdir("../..")
	r := &runner{o: options{slots: 3}, root: ".", goCmd: "go", debian: oldest}
	seen := map[string]bool{}
	programs := map[string]string{} // by the file
	guests := map[string]string{}
	plan, err := r.plan()
	require.NoError(t, err)
	for _, j := range plan {
		require.False(t, seen[j.name], j.name)
		for _, n := range j.needs {
			require.True(t, seen[n], "%s needs %s", j.name, n)
		}
		seen[j.name] = true
		if j.tests == nil {
			continue
		}
		for _, p := range j.tests.packages {
			p, _, _ = strings.Cut(p, " ")
			if !strings.HasSuffix(p, "...") {
				require.DirExists(t, p)
			}
			if f := j.tests.programs.name; f != "" {
				file := f + "/" + filepath.Base(p)
				require.Contains(t, []string{"", p}, programs[file], "two programs are one file")
				programs[file] = p
			}
			if j.tests.lab != nil {
				guests[p] += strings.Join(j.tests.lab, " ") + ";"
			}
		}
	}
	for _, p := range join(basePackages, hostPackages, systemPackages) {
		require.Contains(t, guests[p], "-debian 12", p)
		require.Contains(t, guests[p], "-debian 13", p)
	}
	// Whatever uses the lab's devices is in one of the lists.
	listed := join(basePackages, hostPackages, systemPackages, cachePackages, examplePackages, words("./ci/bench ./ci/bench/lockoffload"))
	require.NoError(t, filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if slices.Contains(modules, path) {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "lab."+"Require(") {
			require.True(t, slices.Contains(listed, "./"+filepath.Dir(path)), path)
		}
		return err
	}))
	only := selected(plan, regexp.MustCompile("^(guest-12-systems)"))
	require.Equal(t, "launcher build-13 guest-12-systems", only[0].name+" "+only[1].name+" "+only[2].name)
	require.Len(t, only, 3)
}

// A host with a device runs the device tests and the self-test on that, and boots no guest.
func TestPlanOfADevice(t *testing.T) {
	t.Chdir("../..")
	r := &runner{o: options{slots: 2, device: "mlx5_7"}, root: ".", goCmd: "go", debian: newest}
	plan, err := r.plan()
	require.NoError(t, err)
	names := map[string]*job{}
	for _, j := range plan {
		names[j.name] = j
		require.False(t, strings.HasPrefix(j.name, "guest"), j.name)
	}
	require.Contains(t, names, "device")
	require.Equal(t, "RDMA_DEVICE=mlx5_7", names["report"].command[len(names["report"].command)-1])
}

// The parts in which the workflow runs the tests have all jobs, each once.
func TestWorkflowRunsAllJobs(t *testing.T) {
	t.Chdir("../..")
	b, err := os.ReadFile(".github/workflows/test.yml")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ +part: \[(.*)\]$`).FindSubmatch(b)
	require.NotNil(t, line)
	var parts []*regexp.Regexp
	for _, p := range regexp.MustCompile(`'([^']+)'`).FindAllSubmatch(line[1], -1) {
		parts = append(parts, regexp.MustCompile("^("+string(p[1])+")"))
	}
	plan, err := (&runner{o: options{slots: 2}, root: ".", goCmd: "go", debian: oldest}).plan()
	require.NoError(t, err)
	for _, j := range plan {
		n := 0
		for _, p := range parts {
			if p.MatchString(j.name) {
				n++
			}
		}
		if !j.first { // those run where another job needs them
			require.Equal(t, 1, n, j.name)
		}
	}
}
