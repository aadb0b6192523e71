package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/goverbs/goverbs/ci/internal/kernel"
	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/internal/vm"
	"github.com/goverbs/goverbs/ci/topo"
)

// Exit statuses of the launcher itself, as those of timeout(1) and env(1).
const (
	exitTimeout = 124
	exitLab     = 125
)

// run is the whole life of the lab; it answers the exit status.
func run(ctx context.Context, o *options) (int, error) {
	start := time.Now()
	say := func(format string, args ...any) {
		if o.verbose {
			fmt.Fprintf(os.Stderr, "rxelab: %6.2fs "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
		}
	}
	tree, err := kernel.Get(ctx, o.kernel)
	if err != nil {
		return exitLab, err
	}
	say("kernel %s", tree.Release)
	self, err := os.Executable()
	if err != nil {
		return exitLab, err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return exitLab, err
	}
	dir, err := os.MkdirTemp("", "rxelab-")
	if err != nil {
		return exitLab, err
	}
	defer os.RemoveAll(dir)

	shares := sharedDirs(o.argv)
	if o.artifacts != "" {
		if err := os.MkdirAll(o.artifacts, 0o755); err != nil {
			return exitLab, err
		}
		shares = append(shares, o.artifacts)
	}
	l := &lab{o: o, cfg: vm.Config{Kernel: tree, Init: program, Accel: o.accel, Clock: o.clock, SMP: o.smp,
		Memory: o.memory, CPU: o.cpu, Shares: shares, Topo: o.topo, Hosts: o.hosts, Dir: dir}, say: say}
	if o.accel == "auto" {
		l.cfg.Accel = "tcg"
		if vm.ProbeKVM(ctx, l.cfg) {
			l.cfg.Accel = "kvm"
		}
		say("accelerator %s", l.cfg.Accel)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	defer l.stop()
	if err := l.boot(ctx); err != nil {
		return l.failed(ctx, err)
	}
	say("booted")
	code, err := l.command(ctx)
	say("command ended")
	if err != nil {
		return l.failed(ctx, err)
	}
	return code, nil
}

var (
	errTimeout = errors.New("the time limit ran out")
	errGone    = errors.New("the guest is gone")
)

// lab is the machines of one run.
type lab struct {
	o   *options
	cfg vm.Config
	hub *vm.Hub
	say func(string, ...any)

	mu       sync.Mutex
	machines []*vm.Machine
	lastID   uint64
	waiting  map[uint64]chan proto.Message
}

func (l *lab) failed(ctx context.Context, err error) (int, error) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errTimeout):
		return exitTimeout, fmt.Errorf("%w (%v)\n%s", errTimeout, l.o.timeout, l.consoles())
	case cause != nil:
		return 130, errors.New("interrupted")
	case errors.Is(err, errGone):
		return exitLab, fmt.Errorf("%w\n%s", err, l.consoles())
	}
	return exitLab, err
}

func (l *lab) consoles() string {
	var b strings.Builder
	for _, m := range l.machines {
		if m != nil {
			b.WriteString(m.ConsoleTail(40) + "\n")
		}
	}
	return b.String()
}

// boot starts all hosts at once.
func (l *lab) boot(ctx context.Context) error {
	l.waiting = make(map[uint64]chan proto.Message)
	l.machines = make([]*vm.Machine, l.o.hosts)
	if l.o.topo == "hosts" {
		hub, err := vm.NewHub(l.netSocket())
		if err != nil {
			return err
		}
		l.hub = hub
	}
	errs := make([]error, l.o.hosts)
	var wg sync.WaitGroup
	for i := range l.o.hosts {
		wg.Go(func() { errs[i] = l.start(ctx, i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (l *lab) netSocket() string { return filepath.Join(l.cfg.Dir, "net") }

func (l *lab) start(ctx context.Context, host int) error {
	socket := ""
	if l.hub != nil {
		socket = l.netSocket()
	}
	m, err := vm.Start(ctx, &l.cfg, host, socket)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.machines[host] = m
	l.mu.Unlock()
	go l.serve(ctx, m)
	return nil
}

// stop ends everything and keeps the consoles if somebody wants them.
func (l *lab) stop() {
	for i, m := range l.machines {
		if m == nil {
			continue
		}
		m.Kill()
		console := m.Console()
		for _, line := range oopses(console) {
			fmt.Fprintf(os.Stderr, "rxelab: kernel of host %d: %s\n", i, line)
		}
		if l.o.artifacts != "" {
			os.WriteFile(filepath.Join(l.o.artifacts, fmt.Sprintf("console-%d.log", i)), console, 0o644)
		}
	}
	if l.hub != nil {
		l.hub.Close()
	}
}

var oops = regexp.MustCompile(`(?m)^.*(Kernel panic|BUG:|Oops|WARNING: CPU|refcount_t|general protection|rcu.*stall|soft lockup).*$`)

// oopses are the lines in which a kernel complains of itself.
func oopses(console []byte) []string {
	var out []string
	for _, m := range oops.FindAll(console, 10) {
		out = append(out, string(bytes.TrimSpace(m)))
	}
	return out
}

// command runs the command on host 0, or on all of them, and answers its exit
// status: the first that is not 0.
func (l *lab) command(ctx context.Context) (int, error) {
	hosts := []int{0}
	if l.o.all {
		hosts = nil
		for i := range l.o.hosts {
			hosts = append(hosts, i)
		}
	}
	codes, errs := make([]int, len(hosts)), make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { codes[i], errs[i] = l.runOn(ctx, h, len(hosts) > 1) })
	}
	wg.Wait()
	for _, c := range codes {
		if c != 0 {
			return c, errors.Join(errs...)
		}
	}
	return 0, errors.Join(errs...)
}

func (l *lab) runOn(ctx context.Context, host int, prefixed bool) (int, error) {
	m := l.machine(host)
	wd, err := os.Getwd()
	if err != nil {
		return exitLab, err
	}
	req := proto.Message{Op: proto.OpExec, Argv: l.o.argv, Env: l.environ(host), Dir: wd, Main: true}
	if len(req.Argv) == 0 {
		shell := envOr("SHELL", "/bin/sh")
		req.Argv = []string{shell, "-i"}
		if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
			old, err := term.MakeRaw(fd)
			if err != nil {
				return exitLab, err
			}
			defer term.Restore(fd, old)
			req.TTY = true
		}
		go io.Copy(m.Stdin, os.Stdin)
	}
	var out, errOut io.Writer = os.Stdout, os.Stderr
	if prefixed {
		out, errOut = &prefixer{w: out, prefix: fmt.Sprintf("[%d] ", host)}, &prefixer{w: errOut, prefix: fmt.Sprintf("[%d] ", host)}
	}
	var copied sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pass := func(dst io.Writer, src io.Reader) {
		// The command would wait for ever for a reader that has gone away.
		if _, err := io.Copy(dst, src); errors.Is(err, syscall.EPIPE) {
			cancel(fmt.Errorf("output of %s: %w", req.Argv[0], err))
		}
	}
	copied.Go(func() { pass(out, m.Stdout) })
	copied.Go(func() { pass(errOut, m.Stderr) })
	reply, err := l.ask(ctx, host, req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return exitLab, err
	}
	// What the command wrote is on its way through QEMU; its end is marked by
	// nothing, so the machine is ended and the ports drained.
	drain(m)
	copied.Wait()
	if reply.Error != "" {
		return reply.Code, fmt.Errorf("%s: %s", req.Argv[0], reply.Error)
	}
	return reply.Code, nil
}

// environ is what the command finds: the lab's own variables, those of the
// host that matter, and what -env says.
func (l *lab) environ(host int) []string {
	pass := regexp.MustCompile(`^(HOME|PATH|SHELL|TERM|LANG|LC_ALL|USER|TMPDIR|GO[A-Z0-9]*|LAB_[A-Z_]*|RDMA_[A-Z_]*|GOVERBS_[A-Z_]*)=`)
	var env []string
	for _, e := range os.Environ() {
		if pass.MatchString(e) {
			env = append(env, e)
		}
	}
	addrs := make([]string, max(l.o.hosts, 2))
	for i := range addrs {
		addrs[i] = topo.Addr(i).String()
	}
	env = append(env, "LAB_TOPOLOGY="+l.o.topo, "LAB_CLOCK="+l.o.clock, "LAB_KERNEL_RELEASE="+l.cfg.Kernel.Release,
		fmt.Sprintf("LAB_HOST=%d", host), fmt.Sprintf("LAB_HOSTS=%d", l.o.hosts), "LAB_ADDRS="+strings.Join(addrs, ","))
	if l.o.artifacts != "" {
		env = append(env, "LAB_ARTIFACTS="+l.o.artifacts)
	}
	return append(env, l.o.env...)
}

func (l *lab) machine(host int) *vm.Machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if host < 0 || host >= len(l.machines) {
		return nil
	}
	return l.machines[host]
}
