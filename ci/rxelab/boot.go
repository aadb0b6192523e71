package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/internal/vm"
	"github.com/goverbs/goverbs/ci/topo"
)

// hostState is one host through all its boots.
type hostState struct {
	boots     int
	stillborn map[int]bool  // boots that never reached the init process
	machine   *vm.Machine   // the last one that was ready
	killed    bool          // the machine ends, or has ended, because it was asked to
	turn      chan struct{} // holds a token while a request kills or starts the host
}

// boot starts all hosts at once and proves that they reach each other.
func (l *lab) boot(ctx context.Context) error {
	if l.o.topo == "hosts" {
		l.hub = vm.NewHub()
	}
	errs := make([]error, l.o.hosts)
	var wg sync.WaitGroup
	for i := range l.o.hosts {
		wg.Go(func() { errs[i] = l.start(ctx, i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := 1; i < l.o.hosts; i++ {
		if err := l.prove(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) prove(ctx context.Context, host, peer int) error {
	r, err := l.ask(ctx, host, proto.Message{Op: proto.OpProve, Peer: topo.Addr(peer).String()})
	if err == nil && r.Error != "" {
		err = fmt.Errorf("host %d: %s", host, r.Error)
	}
	return err
}

// start boots a host, and once more if it dies before its init process, which is the emulator's
// doing and no fault of what is tested.
func (l *lab) start(ctx context.Context, host int) error {
	if old := l.machine(host); old != nil {
		old.Close()
	}
	m, err := l.bootOnce(ctx, host)
	if errors.Is(err, vm.ErrDeadOnArrival) && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "rxelab: %v\nrxelab: host %d is booted once more\n", err, host)
		m, err = l.bootOnce(ctx, host)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.hosts[host].machine, l.hosts[host].killed = m, false
	l.mu.Unlock()
	go l.serve(m)
	go l.watch(m)
	return nil
}

func (l *lab) bootOnce(ctx context.Context, host int) (*vm.Machine, error) {
	l.mu.Lock()
	h := &l.hosts[host]
	h.boots++
	n := h.boots
	l.mu.Unlock()
	m, err := vm.Start(ctx, &l.cfg, host, l.bootDir(host, n), l.hub)
	if errors.Is(err, vm.ErrDeadOnArrival) {
		l.mu.Lock()
		if h.stillborn == nil {
			h.stillborn = make(map[int]bool)
		}
		h.stillborn[n] = true
		l.mu.Unlock()
	}
	return m, err
}

// bootDir returns the folder of a host's n-th boot.
func (l *lab) bootDir(host, n int) string {
	return filepath.Join(l.cfg.Dir, fmt.Sprintf("host%d-boot%d", host, n))
}

// watch notes a host that ends without having been killed.
func (l *lab) watch(m *vm.Machine) {
	<-m.Exited()
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := &l.hosts[m.Host]; h.killed || l.stopping {
		return
	}
	l.problems = append(l.problems, fmt.Sprintf("host %d died, and no program had killed it\n%s", m.Host, m.ConsoleTail(40)))
}

// kill ends a host on request.
func (l *lab) kill(host int) {
	l.mu.Lock()
	m := l.hosts[host].machine
	select {
	case <-m.Exited(): // by itself, or killed before
	default:
		l.hosts[host].killed = true
	}
	l.mu.Unlock()
	m.Kill()
}

// stop ends everything, keeps the console logs if they are wanted, and
// returns what makes the run fail: hosts that died, kernels that complained.
func (l *lab) stop() []string {
	l.mu.Lock()
	l.stopping = true
	problems := l.problems
	l.mu.Unlock()
	l.requests.Wait() // a host may be booting
	for i := range l.hosts {
		h := &l.hosts[i]
		if h.machine != nil {
			h.machine.Close()
		}
		for n := 1; n <= h.boots; n++ {
			console, err := os.ReadFile(filepath.Join(l.bootDir(i, n), "console.log"))
			if err != nil {
				continue // it did not come as far
			}
			if !h.stillborn[n] {
				for _, c := range complaints(console) {
					problems = append(problems, fmt.Sprintf("the kernel of host %d complains:\n    %s", i, strings.ReplaceAll(c, "\n", "\n    ")))
				}
			}
			if l.o.artifacts != "" {
				name := fmt.Sprintf("console-%d-%d.log", i, n)
				if err := os.WriteFile(filepath.Join(l.o.artifacts, name), console, 0o644); err != nil {
					problems = append(problems, err.Error())
				}
			}
		}
	}
	if l.hub != nil {
		l.hub.Close()
	}
	return problems
}

// consoles returns the last lines of each host's console.
func (l *lab) consoles() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, h := range l.hosts {
		if h.machine != nil {
			b.WriteString(h.machine.ConsoleTail(40) + "\n")
		}
	}
	return b.String()
}

func (l *lab) machine(host int) *vm.Machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if host < 0 || host >= len(l.hosts) {
		return nil
	}
	return l.hosts[host].machine
}
