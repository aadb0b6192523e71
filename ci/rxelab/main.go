// Command rxelab runs a command on real Soft-RoCE, on any Linux machine: it
// boots a stock kernel in a virtual machine that shares the host's files, makes
// RDMA devices and a network between them, and runs the command there. Exit
// status and output are the command's.
//
//	rxelab -- ibv_devinfo                      # two devices on one wire
//	rxelab -topo hosts=2 -- ./server-and-client
//	go test -exec 'rxelab -kernel 6.12' ./...  # every test on real RDMA
//	rxelab                                     # a shell
//
// Without a command it is an interactive shell. README.md in the folder above
// tells about topologies, clocks and what tests can do inside.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/internal/guest"
)

func main() {
	if guest.IsInit() {
		guest.Main()
	}
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "rxelab:", err)
		}
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxelab:", err)
	}
	os.Exit(code)
}

// options are the parsed command line.
type options struct {
	kernel    string
	topo      string // name without a number of hosts
	hosts     int
	clock     string
	accel     string
	smp       int
	memory    int
	cpu       string
	timeout   time.Duration
	artifacts string
	env       []string
	all       bool
	verbose   bool
	argv      []string
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// parse reads flags up to the first argument that is none: what follows is the
// command, with flags of its own.
func parse(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("rxelab", flag.ContinueOnError)
	fs.StringVar(&o.kernel, "kernel", envOr("LAB_SERIES", "6.1"), "kernel series: 6.1 or 6.12")
	topo := fs.String("topo", "wire", "topology: wire, ecmp, hosts=N or none")
	fs.StringVar(&o.clock, "clock", "wall", "wall, or instructions: time advances 8 ns with each instruction executed")
	fs.StringVar(&o.accel, "accel", "auto", "auto, kvm or tcg")
	fs.IntVar(&o.smp, "smp", 0, "virtual CPUs; 0 means 2, and 1 with several hosts or the instruction clock")
	fs.IntVar(&o.memory, "mem", 0, "memory of a host in MiB; 0 means 4096, and 1024 with several hosts")
	fs.StringVar(&o.cpu, "cpu", "", "QEMU's CPU model; empty for the clock's own")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "kill the guests after this time, with exit status 124")
	fs.StringVar(&o.artifacts, "artifacts", "", "folder to share read-write as $LAB_ARTIFACTS; console logs go there")
	fs.Var((*list)(&o.env), "env", "NAME=VALUE for the command; may be repeated")
	fs.BoolVar(&o.all, "all", false, "with hosts=N: run the command on every host")
	fs.BoolVar(&o.verbose, "v", false, "say what takes how long")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	o.argv = fs.Args()

	name, n, many := strings.Cut(*topo, "=")
	o.topo, o.hosts = name, 1
	if many {
		hosts, err := strconv.Atoi(n)
		if name != "hosts" || err != nil || hosts < 1 || hosts > 16 {
			return nil, fmt.Errorf("topology %q: hosts=N has 1 to 16 hosts", *topo)
		}
		o.hosts = hosts
	}
	switch {
	case name != "wire" && name != "ecmp" && name != "none" && !(name == "hosts" && many):
		return nil, fmt.Errorf("no topology %q; there are wire, ecmp, hosts=N and none", *topo)
	case o.clock != "wall" && o.clock != "instructions":
		return nil, fmt.Errorf("no clock %q; there are wall and instructions", o.clock)
	case o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg":
		return nil, fmt.Errorf("no accelerator %q; there are auto, kvm and tcg", o.accel)
	case o.clock == "instructions" && o.hosts > 1:
		return nil, errors.New("several hosts have no common instruction clock")
	}
	if o.clock == "instructions" {
		o.accel = "tcg"
	}
	if o.smp == 0 {
		o.smp = 2
		if o.hosts > 1 || o.clock == "instructions" {
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
		abs, err := filepath.Abs(o.artifacts)
		if err != nil {
			return nil, err
		}
		o.artifacts = abs
	}
	return o, nil
}

func envOr(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}
