package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/topo"
)

// command runs the command on host 0, or on all of them until all have ended,
// and returns its exit status: that of the host where it failed first. The others
// may wait for that one for ever: after a while they are told to end.
func (l *lab) command(ctx context.Context) (int, error) {
	n := 1
	if l.o.all {
		n = l.o.hosts
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errTimeout) {
			l.signal(syscall.SIGQUIT) // a Go program shows what its goroutines do
		}
	})
	defer stop()
	errs := make([]error, n)
	over := make(chan struct{})
	var failed sync.Once
	code := 0
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			status, err := l.runOn(ctx, cancel, i, n > 1)
			errs[i] = err
			if status != 0 || err != nil {
				failed.Do(func() {
					code = status
					go l.endOthers(over, cancel, i)
				})
			}
		})
	}
	wg.Wait()
	close(over)
	return code, errors.Join(errs...)
}

// othersGrace is how long hosts go on after the command has failed on one of them.
const othersGrace = 10 * time.Second

// endOthers ends the command where it still runs, first by a signal, at which a Go
// program shows what its goroutines do.
func (l *lab) endOthers(over <-chan struct{}, failed context.CancelCauseFunc, host int) {
	select {
	case <-over:
		return
	case <-time.After(othersGrace):
	}
	fmt.Fprintf(os.Stderr, "rxelab: the command failed on host %d and goes on elsewhere: it is ended there\n", host)
	go l.signal(syscall.SIGQUIT)
	select {
	case <-over:
	case <-time.After(dumpGrace):
		failed(errAlone)
	}
}

// runOn runs the command on one host. What no host can go on without, the
// launcher's own input and output, ends it on all by failed.
func (l *lab) runOn(ctx context.Context, failed context.CancelCauseFunc, host int, prefixed bool) (int, error) {
	m := l.machine(host)
	req := proto.Message{Op: proto.OpExec, Argv: proto.Bytes(l.o.argv), Env: proto.Bytes(l.environ(host)), Dir: []byte(l.o.dir),
		Main: true, Keep: proto.Bytes(l.o.keep)}
	if len(req.Argv) == 0 {
		req.Argv = proto.Bytes([]string{envOr("SHELL", "/bin/sh")})
		if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
			old, err := term.MakeRaw(fd)
			if err != nil {
				return exitLab, err
			}
			defer term.Restore(fd, old)
			req.TTY = true
		}
	}
	input := io.Reader(strings.NewReader("")) // one input cannot be for several hosts
	if host == 0 && !inBackground(int(os.Stdin.Fd())) {
		input = os.Stdin
	}
	go proto.SendInput(m.Stdin, failing{input, func(err error) { failed(fmt.Errorf("standard input: %w", err)) }})

	out := newOutput("standard output", os.Stdout, failed)
	errOut := newOutput("standard error", os.Stderr, failed)
	if prefixed {
		out.prefix, errOut.prefix = fmt.Sprintf("[%d] ", host), fmt.Sprintf("[%d] ", host)
	}
	go out.copy(m.Stdout)
	go errOut.copy(m.Stderr)
	reply, err := l.ask(ctx, host, req)
	switch {
	case errors.Is(err, errGone):
		// What it wrote before may tell why.
		err = errors.Join(err, out.wait(ctx, rest), errOut.wait(ctx, rest))
	case err != nil && errors.Is(context.Cause(ctx), errTimeout):
		time.Sleep(dumpGrace)
		out.flush()
		errOut.flush()
	}
	if err == nil {
		// What the command wrote is on its way; the reply says how much it is.
		err = errors.Join(out.wait(ctx, reply.OutBytes), errOut.wait(ctx, reply.ErrBytes))
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return exitLab, context.Cause(ctx)
	case err != nil:
		return exitLab, err
	case reply.Error != "" && reply.Code == 0:
		return exitLab, errors.New(reply.Error)
	case reply.Error != "":
		return reply.Code, fmt.Errorf("%s: %s", req.Argv[0], reply.Error)
	}
	return reply.Code, nil
}

// failing reports errors other than the end.
type failing struct {
	io.Reader
	failed func(error)
}

func (f failing) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil && err != io.EOF {
		f.failed(err)
	}
	return n, err
}

// inBackground reports whether fd is a terminal that is another job's: reading
// from it would stop this one.
func inBackground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// dumpGrace is what a command that ran out of time has to say where it hangs.
const dumpGrace = 3 * time.Second

// signal passes a signal on to the command, on each host that runs it.
func (l *lab) signal(sig syscall.Signal) {
	for i := range l.hosts {
		if m := l.machine(i); m != nil && (i == 0 || l.o.all) {
			m.Control.Send(proto.Message{Op: proto.OpSignal, Signal: int(sig)})
		}
	}
}

// environ returns what the command finds: see environ, and the lab's own variables.
func (l *lab) environ(host int) []string {
	addrs := make([]string, max(l.o.hosts, 2))
	for i := range addrs {
		addrs[i] = topo.Addr(i).String()
	}
	env := append(environ(os.Environ(), l.o.cleanEnv, nil), "LAB_TOPOLOGY="+l.o.topo, "LAB_CLOCK="+l.o.clock,
		"LAB_KERNEL_RELEASE="+l.cfg.Kernel.Release, fmt.Sprintf("LAB_HOST=%d", host), fmt.Sprintf("LAB_HOSTS=%d", l.o.hosts),
		"LAB_ADDRS="+strings.Join(addrs, ","))
	if l.o.artifacts != "" {
		env = append(env, "LAB_ARTIFACTS="+l.o.artifacts)
	}
	return append(env, chosen(os.Environ(), l.o.env)...)
}

// output passes on what the command writes to one of its streams.
type output struct {
	name   string
	w      io.Writer
	prefix string // before each line
	failed context.CancelCauseFunc

	mu    sync.Mutex
	more  sync.Cond
	n     int64 // bytes that came
	ended bool
	line  bytes.Buffer // with a prefix: what is not a whole line yet
}

func newOutput(name string, w io.Writer, failed context.CancelCauseFunc) *output {
	o := &output{name: name, w: w, failed: failed}
	o.more.L = &o.mu
	return o
}

func (o *output) copy(from io.Reader) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if werr := o.write(buf[:n]); werr != nil {
			// The command would wait for ever for a reader that has gone away.
			o.failed(fmt.Errorf("%s: %w", o.name, werr))
			err = werr
		}
		o.mu.Lock()
		o.n += int64(n)
		o.ended = err != nil
		o.more.Broadcast()
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (o *output) write(b []byte) error {
	if o.prefix == "" {
		_, err := o.w.Write(b)
		return err
	}
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			o.mu.Lock()
			o.line.Write(b) // not whole yet
			o.mu.Unlock()
			return nil
		}
		line := slices.Concat(o.taken(), b[:end])
		b = b[end:]
		if _, err := o.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// taken returns the prefix and what is there of a line.
func (o *output) taken() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := slices.Concat([]byte(o.prefix), o.line.Bytes())
	o.line.Reset()
	return b
}

// flush passes on a last line without its end.
func (o *output) flush() error {
	b := o.taken()
	if len(b) == len(o.prefix) {
		return nil
	}
	if _, err := fmt.Fprintf(o.w, "%s\n", b); err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return nil
}

// rest, for wait: all that comes until the stream ends.
const rest = -1

// wait returns when n bytes have been passed on.
func (o *output) wait(ctx context.Context, n int64) (err error) {
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		o.more.Broadcast()
		o.mu.Unlock()
	})
	defer stop()
	defer func() { err = errors.Join(err, o.flush()) }() // whatever came of it
	o.mu.Lock()
	defer o.mu.Unlock()
	for (n == rest || o.n < n) && !o.ended && ctx.Err() == nil {
		o.more.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case o.n < n:
		return fmt.Errorf("%s: %d of %d bytes were lost", o.name, n-o.n, n)
	}
	return nil
}
