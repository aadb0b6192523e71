package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/files"
	"github.com/goverbs/goverbs/ci/internal/kernel"
	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/internal/vm"
)

var (
	errTimeout     = errors.New("the time limit ran out")
	errInterrupted = errors.New("interrupted")
	errGone        = errors.New("the guest is gone")
	errAlone       = errors.New("the command failed on another host")
)

// lab is the machines of one run.
type lab struct {
	o   *options
	cfg vm.Config
	hub *vm.Hub
	say func(string, ...any)
	// life ends with the run: what programs in guests ask for is bound to it.
	life context.Context

	mu       sync.Mutex
	hosts    []hostState
	lastID   uint64
	waiting  map[uint64]chan proto.Message
	problems []string // what makes the run fail, whatever the command says
	stopping bool
	requests sync.WaitGroup // of programs in guests
}

// run is the whole life of the lab; it returns the exit status.
func run(ctx context.Context, o *options, signals <-chan os.Signal) (code int, err error) {
	start := time.Now()
	l := &lab{o: o, waiting: make(map[uint64]chan proto.Message), hosts: make([]hostState, o.hosts)}
	for i := range l.hosts {
		l.hosts[i].turn = make(chan struct{}, 1)
	}
	l.say = func(format string, args ...any) {
		if o.verbose {
			fmt.Fprintf(os.Stderr, "rxelab: %6.2fs "+format+"\n", append([]any{time.Since(start).Seconds()}, args...)...)
		}
	}
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	life, end := context.WithCancel(ctx)
	l.life = life
	running := make(chan struct{})
	go l.handle(signals, running, interrupt)

	boot, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	done, err := l.prepare(boot)
	if err != nil {
		end()
		return exitLab, l.explain(boot, err)
	}
	defer done()
	defer func() {
		end()
		problems := l.stop()
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, "rxelab:", p)
		}
		if len(problems) > 0 && code == 0 {
			code = exitLab
		}
	}()
	if err := l.boot(boot); err != nil {
		return exitLab, l.explain(boot, err)
	}
	cancel()
	l.say("ready")

	limited, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	close(running)
	code, err = l.command(limited)
	l.say("command ended")
	if err != nil {
		return code, l.explain(limited, err)
	}
	if err := l.bringBack(); err != nil {
		return cmp.Or(code, exitLab), err
	}
	return code, nil
}

// prepare gets everything that guests need. What it makes goes with done.
func (l *lab) prepare(ctx context.Context) (done func(), err error) {
	cacheDir, err := cache.Dir()
	if err != nil {
		return nil, err
	}
	tree, err := kernel.Get(ctx, l.o.kernel)
	if err != nil {
		return nil, err
	}
	l.say("kernel %s", tree.Release)
	if tree.Packed != nil {
		l.say("the guest unpacks it, which takes seconds: %v", tree.Packed)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	var shares []string
	if l.o.artifacts != "" {
		if err := os.MkdirAll(l.o.artifacts, 0o755); err != nil {
			return nil, err
		}
		shares = append(shares, l.o.artifacts)
	}
	root, err := system(ctx, cacheDir, l.o.debian)
	if err != nil {
		return nil, err
	}
	l.say("system %s", cmp.Or(root, "of this host"))
	dir, done, err := cache.RunDir(ctx, cacheDir)
	if err != nil {
		return nil, err
	}
	l.cfg = vm.Config{Kernel: tree, Init: program, Accel: l.o.accel, Clock: l.o.clock, SMP: l.o.smp,
		Memory: l.o.memory, CPU: l.o.cpu, Shares: shares, Needs: needs(l.o.argv, l.o.dir, environ(os.Environ(), l.o.cleanEnv, l.o.env)), Root: root, Topo: l.o.topo, Hosts: l.o.hosts, Dir: dir}
	if l.o.accel == "auto" {
		works, why, err := vm.ProbeKVM(ctx, l.cfg, cacheDir)
		if err != nil {
			done()
			return nil, err
		}
		l.cfg.Accel = "kvm"
		if !works {
			l.cfg.Accel = "tcg"
			l.say("no KVM: %s", why)
		}
	}
	return done, nil
}

// handle passes the first signal on to the command and gives it time to end;
// the next one, or one before there is a command, ends the lab.
func (l *lab) handle(signals <-chan os.Signal, running <-chan struct{}, interrupt context.CancelCauseFunc) {
	const grace = 10 * time.Second
	passed := false
	for sig := range signals {
		select {
		case <-running:
			if !passed {
				passed = true
				go l.signal(sig.(syscall.Signal)) // a guest that hangs may not take it
				time.AfterFunc(grace, func() { interrupt(errInterrupted) })
				continue
			}
		default:
		}
		interrupt(errInterrupted)
	}
}

// explain says why the lab failed.
func (l *lab) explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errTimeout) && errors.Is(err, vm.ErrBoot): // shows the console
		return fmt.Errorf("%w (%v)\n%w", errTimeout, l.o.timeout, err)
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%w (%v)\n%s", errTimeout, l.o.timeout, l.consoles())
	case errors.Is(cause, errInterrupted): // and not what became of it, such as "signal: killed"
		return cause
	case errors.Is(err, errGone):
		return fmt.Errorf("%w\n%s", err, l.consoles())
	}
	return err
}

// bringBack puts what the command wrote where it named it.
func (l *lab) bringBack() error {
	if len(l.o.keep) == 0 {
		return nil
	}
	out := l.machine(0).Out
	for i, path := range l.o.keep {
		if err := files.CopyTree(filepath.Join(out, fmt.Sprint(i)), path); err != nil {
			return fmt.Errorf("bring back %s: %w", path, err)
		}
	}
	return nil
}
