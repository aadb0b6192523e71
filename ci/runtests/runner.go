package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/internal/debian"
)

// runner is one run.
type runner struct {
	o      options
	root   string // of the module
	goCmd  string
	debian string // version of the host's Debian; empty if it is none

	mu       sync.Mutex
	results  map[string]*results // by job
	failures map[string]error    // by job
	failed   []*job
	times    []stageTime
	packages []packageTime
	flaky    []string
	closing  []string // lines as go test ends with, in the order in which packages ended
}

// stageTime and packageTime are what build/test-times.json has, in seconds.
type (
	stageTime struct {
		Job     string  `json:"job"`
		Begin   float64 `json:"begin"` // since the run began
		Seconds float64 `json:"seconds"`
		CPU     float64 `json:"cpu"`
	}
	packageTime struct {
		Job     string  `json:"job"`
		Package string  `json:"package"`
		Seconds float64 `json:"seconds"`
	}
)

var began = time.Now()

func newRunner(o options) (*runner, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return nil, errors.New("run it in the root of the module")
	}
	if o.slots < 1 {
		return nil, fmt.Errorf("-slots %d: at least 1", o.slots)
	}
	r := &runner{o: o, root: root, results: map[string]*results{}, failures: map[string]error{}}
	r.debian, _ = debian.Host()
	r.goCmd = "go"
	if g := os.Getenv("GO"); g != "" {
		r.goCmd = g
	}
	return r, os.MkdirAll("build/logs", 0o755)
}

// releaseEnv returns the environment in which the go command builds for a Debian release, from
// ci/headers, which prints it quoted for a shell.
func (r *runner) releaseEnv(debian string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := r.headers(context.Background(), "-env", codenames[debian]+"/amd64")
	if err != nil {
		return []string{"CC=false"} // the build tells
	}
	cmd := exec.Command("env", "-i", "sh", "-c", "export "+out+" && env")
	env, _ := cmd.Output()
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(env)), "\n"), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "PWD" || name == "SHLVL" || name == "_"
	})
}

// versions prints what the run depends on.
func (r *runner) versions(ctx context.Context) {
	show := func(name string, argv ...string) {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			line = err.Error()
		}
		fmt.Printf("%-10s %s\n", name, line)
	}
	show("go", r.goCmd, "version")
	show("kernel", "uname", "-srvm")
	show("system", "sh", "-c", ". /etc/os-release && echo $PRETTY_NAME")
	show("rdma-core", "sh", "-c", "dpkg-query -W -f '${Version}' libibverbs1 || pkg-config --modversion libibverbs")
	if r.o.device == "" {
		show("qemu", "qemu-system-x86_64", "--version")
	}
	show("compiler", "cc", "--version")
	fmt.Printf("%-10s %d, %d jobs of waiting tests at a time\n", "processors", runtime.NumCPU(), r.o.slots)
}

func (r *runner) openLog(name string) (*os.File, error) {
	return os.Create(filepath.Join(r.root, "build/logs", name+".log"))
}

func (r *runner) failedJob(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures[name] != nil
}

// ended notes how a job ended.
func (r *runner) ended(j *job, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.times = append(r.times, stageTime{j.name, round(time.Since(began) - took), round(took), round(j.cpu)})
	how := "ended"
	if err != nil {
		how = "FAILED: " + err.Error()
		r.failures[j.name] = err
		r.failed = append(r.failed, j)
	}
	fmt.Printf("## %s %s after %.0f s, %.0f s of CPU\n", j.name, how, took.Seconds(), j.cpu.Seconds())
	if err != nil && j.tests == nil {
		r.showLog(j.name)
	}
}

// showLog prints the end of a job's log.
func (r *runner) showLog(name string) {
	const most = 20_000
	b, _ := os.ReadFile(filepath.Join(r.root, "build/logs", name+".log"))
	if len(b) > most {
		b = b[len(b)-most:]
		fmt.Printf("... (all of it is in build/logs/%s.log)\n", name)
	}
	fmt.Printf("%s\n", b)
}

// packageEnded prints the closing line of a package as go test does, after what failed.
func (r *runner) packageEnded(j *job, p *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.counted && p.passed() {
		return // no tests
	}
	r.packages = append(r.packages, packageTime{j.name, p.pkg, p.seconds})
	word := "ok  "
	if !p.passed() {
		word = "FAIL"
		r.show(p)
	}
	line := fmt.Sprintf("%s\t%s\t%.3fs\t(%s)", word, p.pkg, p.seconds, j.name)
	fmt.Println(line)
	r.closing = append(r.closing, line)
}

// show prints the output of a package's failed tests, or all of it if none of them says why.
func (r *runner) show(p *result) {
	for _, t := range slices.Sorted(maps.Keys(p.failed)) {
		fmt.Print(p.text(t))
	}
	if p.whole() {
		fmt.Print(p.text(""))
	}
}

func round(d time.Duration) float64 { return float64(d.Milliseconds()/100) / 10 }
