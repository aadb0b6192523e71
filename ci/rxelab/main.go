// Command rxelab runs a command on real Soft-RoCE, on any Linux machine: it
// boots a stock kernel in a virtual machine that shares the host's files, makes
// RDMA devices and a network between them, and runs the command there.
//
//	rxelab -- ibv_devinfo                      # two devices on one wire
//	rxelab -topo hosts=2 -- ./server-and-client
//	go test -exec 'rxelab -kernel 6.12' ./...  # every test on real RDMA
//	rxelab                                     # a shell
//
// Standard input, output, environment and signals are the command's, and so is
// the exit status: 125 is the lab's own, when it could not run the command, lost
// something, ran out of time, or when a kernel complained or a host died without
// having been killed. Without a command it is a shell. README.md in the folder above
// describes topologies, clocks and what tests can do inside.
package main

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/internal/guest"
	"github.com/goverbs/goverbs/ci/internal/vm"
)

// exitLab is the exit status of the launcher itself.
const exitLab = 125

func main() {
	if guest.IsInit() {
		guest.Main()
	}
	os.Exit(launch(os.Args[1:], canBeInit))
}

// launch does what the arguments say, once check has found nothing against it,
// and returns the exit status.
func launch(args []string, check func() error) int {
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is an error of a write
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // as nohup does, and a shell for jobs in the background
			signal.Notify(signals, s)
		}
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := exitLab
	if err == nil {
		err = check()
	}
	if err == nil {
		code, err = run(context.Background(), o, signals)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxelab:", err)
	}
	return code
}

// canBeInit returns an error unless this program can be the init process of a guest.
func canBeInit() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("the lab boots x86-64 guests with this program as their init process: it does not run on %s", runtime.GOARCH)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := elf.Open(self)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("this program needs shared libraries, and is to be the guest's init process: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// options are the parsed command line.
type options struct {
	kernel    string
	debian    string
	topo      string // name without a number of hosts
	hosts     int
	clock     string
	accel     string
	smp       int
	memory    int
	cpu       string
	timeout   time.Duration // of the boot, and again of the command
	artifacts string
	env       []string
	cleanEnv  bool
	keep      []string
	all       bool
	verbose   bool
	argv      []string
	dir       string
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

const defaultTimeout = 10 * time.Minute

// parse reads flags up to the first argument that is none: what follows is the
// command, with flags of its own.
func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("rxelab", flag.ContinueOnError)
	fs.StringVar(&o.kernel, "kernel", envOr("LAB_SERIES", "6.1"), "kernel series: 6.1 or 6.12")
	fs.StringVar(&o.debian, "debian", "", "Debian 12 or 13: its kernel, and its system with its rdma-core instead of this host's")
	topo := fs.String("topo", "wire", "topology: wire, ecmp, hosts=N or none")
	fs.StringVar(&o.clock, "clock", "wall", "wall, or instructions: time advances 8 ns with each instruction executed;\ninstructions-4ns and instructions-2ns: less, as a faster processor's does")
	fs.StringVar(&o.accel, "accel", "auto", "auto, kvm or tcg")
	fs.IntVar(&o.smp, "smp", 0, "virtual CPUs; 0 means 2, and 1 with several hosts or the instruction clock")
	fs.IntVar(&o.memory, "mem", 0, "memory of a host in MiB; 0 means 4096, and 1024 with several hosts")
	fs.StringVar(&o.cpu, "cpu", "", "QEMU's CPU model; empty for the clock's own")
	fs.DurationVar(&o.timeout, "timeout", defaultTimeout, "limit of the boot, and again of the command once the guests are ready;\na test binary has a minute more than its own -test.timeout instead")
	fs.StringVar(&o.artifacts, "artifacts", "", "folder to share read-write as $LAB_ARTIFACTS; console logs go there")
	fs.Var((*list)(&o.env), "env", "NAME=VALUE, or NAME or PREFIX* of this environment, for the command; may be repeated")
	fs.BoolVar(&o.cleanEnv, "clean-env", false, "pass on of this environment only PATH and the like, and what -env says")
	fs.Var((*list)(&o.keep), "keep", "file or folder: bring back what the command writes there; may be repeated")
	fs.BoolVar(&o.all, "all", false, "with hosts=N: run the command on every host, until all have ended")
	fs.BoolVar(&o.verbose, "v", false, "say what takes how long")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	o.argv = fs.Args()
	var err error
	if o.dir, err = os.Getwd(); err != nil {
		return nil, err
	}

	name, n, many := strings.Cut(*topo, "=")
	o.topo, o.hosts = name, 1
	if many {
		hosts, err := strconv.Atoi(n)
		if name != "hosts" || err != nil || hosts < 1 || hosts > 16 {
			return nil, fmt.Errorf("topology %q: hosts=N has 1 to 16 hosts", *topo)
		}
		o.hosts = hosts
	}
	var keep []string
	for i, k := range o.keep {
		if o.keep[i], err = filepath.Abs(k); err != nil {
			return nil, err
		}
	}
	for _, path := range append(o.keep, written(o.argv, o.dir, environ(os.Environ(), o.cleanEnv, o.env))...) {
		keep = append(keep, places(path)...)
	}
	o.keep = keep
	switch {
	case name != "wire" && name != "ecmp" && name != "none" && !(name == "hosts" && many):
		return nil, fmt.Errorf("no topology %q; there are wire, ecmp, hosts=N and none", *topo)
	case o.clock != "wall" && !vm.CountsInstructions(o.clock):
		return nil, fmt.Errorf("no clock %q; there are wall, instructions, instructions-4ns and instructions-2ns", o.clock)
	case o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg":
		return nil, fmt.Errorf("no accelerator %q; there are auto, kvm and tcg", o.accel)
	case vm.CountsInstructions(o.clock) && o.hosts > 1:
		return nil, errors.New("several hosts have no common instruction clock")
	case o.all && len(o.argv) == 0:
		return nil, errors.New("-all needs a command: there is one terminal")
	case o.all && len(o.keep) > 0:
		return nil, fmt.Errorf("-all: the hosts would all write %s; run profiles, coverage and fuzzing without -all", strings.Join(o.keep, ", "))
	case o.timeout <= 0:
		return nil, fmt.Errorf("-timeout %v: it must be positive", o.timeout)
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if limit := testLimit(o.argv); !given["timeout"] && limit > 0 {
		o.timeout = max(o.timeout, limit)
	}
	if o.debian != "" {
		r, ok := releases[o.debian]
		if !ok {
			return nil, fmt.Errorf("no Debian %q; there are 12 and 13", o.debian)
		}
		if !given["kernel"] {
			o.kernel = r.kernel
		}
	}
	if vm.CountsInstructions(o.clock) {
		o.accel = "tcg"
	}
	if o.smp == 0 {
		o.smp = 2
		if o.hosts > 1 || vm.CountsInstructions(o.clock) {
			o.smp = 1
		}
	}
	if o.memory == 0 {
		o.memory = 4096
		if o.hosts > 1 {
			o.memory = 1024
		}
	}
	if o.artifacts != "" {
		if o.artifacts, err = filepath.Abs(o.artifacts); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func envOr(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}
