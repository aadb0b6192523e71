package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
)

// Each part of what guests leave out is of some test's name.
func TestWhatIsLeftOutExists(t *testing.T) {
	var tests []string
	for _, p := range join(basePackages, hostPackages, systemPackages, cachePackages) {
		_, names, err := astnames.In("../../" + p)
		require.NoError(t, err)
		for name := range names {
			if strings.HasPrefix(name, "Test") {
				tests = append(tests, name)
			}
		}
	}
	for _, part := range strings.Split(notOlder+"|"+onRxe+"|"+ownCache, "|") {
		require.True(t, slices.ContainsFunc(tests, regexp.MustCompile(part).MatchString), part)
	}
}

// What the guests of both kernels leave out of lockoffload and cache runs on simulated devices.
func TestWhatNoGuestRunsIsSimulated(t *testing.T) {
	device := func(pkg string) (tests []string) {
		files, err := filepath.Glob("../../" + pkg + "/*_device_test.go")
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(b, -1) {
				tests = append(tests, string(m[1]))
			}
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
