// Package vm runs guests in QEMU.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/kernel"
	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/internal/testproc"
)

// Config is what the guests of one run have in common.
type Config struct {
	Kernel *kernel.Tree
	Init   []byte // the init program: a static binary
	Accel  string // "kvm" or "tcg"
	Clock  string // "wall", or one that CountsInstructions
	SMP    int    // virtual CPUs
	Memory int    // MiB
	CPU    string // QEMU's name of the CPU model; empty for the clock's default
	Shares []string
	Needs  []string // folders of the host that programs must find
	Root   string   // folder with the guests' system; empty for the host's own
	Topo   string
	Hosts  int
	Dir    string // folder of this run
}

// Machine is one running guest.
type Machine struct {
	Host    int
	Control *proto.Conn
	Stdin   net.Conn
	Stdout  io.Reader
	Stderr  io.Reader
	Out     string // folder that the guest can write to

	dir    string
	pid    int          // QEMU's
	exited <-chan error // how QEMU has ended, once, and closed then
	cancel context.CancelFunc
	conns  map[string]net.Conn
}

// Errors of Start.
var (
	// ErrBoot: the guest ended, or could not prepare itself.
	ErrBoot = errors.New("the guest did not boot")
	// ErrDeadOnArrival: the guest ended, or hung, before its init process ran.
	// Booting it again may help.
	ErrDeadOnArrival = fmt.Errorf("%w: it died before its init process", ErrBoot)
)

// initLimit is how much CPU time a guest may take until its init process runs.
// It needs less than fifteen seconds, emulated; how long that takes depends on what
// else the host does.
const initLimit = time.Minute

// Start boots a guest and waits until it is ready. Its files are in dir, which
// must not exist. With a hub it has a network card plugged into that.
func Start(ctx context.Context, c *Config, host int, dir string, hub *Hub) (*Machine, error) {
	m := &Machine{Host: host, dir: dir, Out: filepath.Join(dir, "out"), conns: make(map[string]net.Conn)}
	if err := os.MkdirAll(m.Out, 0o700); err != nil {
		return nil, err
	}
	initrd, err := image(ctx, c.Kernel, c.Init)
	if err != nil {
		return nil, err
	}
	var theirs []*os.File // inherited by QEMU as 3, 4, ...
	release := func() {
		for _, f := range theirs {
			f.Close()
		}
	}
	defer release()
	join := func() (net.Conn, int, error) {
		conn, f, err := socketPair()
		if err == nil {
			theirs = append(theirs, f)
		}
		return conn, 2 + len(theirs), err
	}
	fds := make(map[string]int)
	for _, p := range proto.Ports {
		if m.conns[p], fds[p], err = join(); err != nil {
			return nil, err
		}
	}
	nic := 0
	if hub != nil {
		conn, fd, err := join()
		if err != nil {
			return nil, err
		}
		nic = fd
		hub.Add(conn)
	}
	qemuCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	stderr := &first{}
	cmd := exec.CommandContext(qemuCtx, qemu, c.args(host, initrd, m.consolePath(), m.Out, proto.Ports, fds, nic)...)
	cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr = stderr, theirs, &syscall.SysProcAttr{Setpgid: true}
	m.exited, err = testproc.Start(cmd)
	release() // or our ends would not see QEMU's end
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			err = fmt.Errorf("%w: install QEMU (Debian: qemu-system-x86)", err)
		}
		return nil, err
	}
	m.pid = cmd.Process.Pid
	m.Control = proto.NewConn(m.conns[proto.PortControl])
	m.Stdin, m.Stdout, m.Stderr = m.conns[proto.PortStdin], m.conns[proto.PortStdout], m.conns[proto.PortStderr]
	if err := m.prepare(ctx, c); err != nil {
		m.Kill()
		if msg := stderr.String(); msg != "" {
			err = fmt.Errorf("%w\nqemu: %s", err, msg)
		}
		return nil, fmt.Errorf("host %d: %w\n%s", host, err, m.ConsoleTail(25))
	}
	return m, nil
}

// socketPair returns our end and the one to be inherited.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	mine, theirs := os.NewFile(uintptr(fds[0]), "guest"), os.NewFile(uintptr(fds[1]), "qemu")
	defer mine.Close() // FileConn has a copy
	conn, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// prepare waits for the init process, tells it its job and waits until that is
// done.
func (m *Machine) prepare(ctx context.Context, c *Config) error {
	job := &proto.Job{Topology: c.Topo, Clock: c.Clock, Host: m.Host, Hosts: c.Hosts,
		Shares: proto.Bytes(c.Shares), Modules: []byte(c.Kernel.Modules), Needs: proto.Bytes(c.Needs), Root: []byte(c.Root)}
	boot, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go m.watchBoot(boot, cancel)
	if _, err := m.expect(boot, proto.OpInit); err != nil {
		if ctx.Err() == nil {
			return ErrDeadOnArrival
		}
		return fmt.Errorf("%w: %w", ErrBoot, context.Cause(ctx))
	}
	cancel(nil)
	if err := m.Control.Send(proto.Message{Op: proto.OpJob, Job: job}); err != nil {
		return fmt.Errorf("%w: %w", ErrBoot, err)
	}
	msg, err := m.expect(ctx, proto.OpReady)
	switch {
	case err != nil:
		return err
	case msg.Error != "":
		return fmt.Errorf("%w: %s", ErrBoot, msg.Error)
	}
	return nil
}

// watchBoot ends the wait for a guest that hangs.
func (m *Machine) watchBoot(ctx context.Context, cancel context.CancelCauseFunc) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if cpuTime(m.pid) > initLimit {
				cancel(ErrDeadOnArrival)
			}
		}
	}
}

// cpuTime returns what a process has used so far; 0 if it is gone.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state ...": utime and stime are the 14th and 15th field, in
	// hundredths of a second.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var ticks time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// expect waits for the guest's next message.
func (m *Machine) expect(ctx context.Context, op string) (proto.Message, error) {
	type answer struct {
		msg proto.Message
		err error
	}
	got := make(chan answer, 1)
	go func() {
		msg, err := m.Control.Receive()
		if err == nil && msg.Op != op {
			err = fmt.Errorf("it says %q for %q", msg.Op, op)
		}
		got <- answer{msg, err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			a.err = fmt.Errorf("%w: %w", ErrBoot, a.err)
		}
		return a.msg, a.err
	case <-ctx.Done():
		return proto.Message{}, fmt.Errorf("%w: %w", ErrBoot, context.Cause(ctx))
	}
}

// Exited is closed when the guest is gone.
func (m *Machine) Exited() <-chan error { return m.exited }

// Kill ends the guest like a power failure and waits until it is gone. What it
// has written to its ports can still be read.
func (m *Machine) Kill() {
	m.cancel()
	<-m.exited
}

// Close kills the guest and closes its ports.
func (m *Machine) Close() {
	m.Kill()
	for _, c := range m.conns {
		c.Close()
	}
}

func (m *Machine) consolePath() string { return filepath.Join(m.dir, "console.log") }

// Console returns the log of the guest's console.
func (m *Machine) Console() []byte {
	b, _ := os.ReadFile(m.consolePath())
	return bytes.ReplaceAll(b, []byte("\r"), nil)
}

// ConsoleTail is its last n lines, marked as such.
func (m *Machine) ConsoleTail(n int) string {
	lines := strings.Split(strings.TrimSpace(string(m.Console())), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return fmt.Sprintf("console of host %d:\n    %s", m.Host, strings.Join(lines, "\n    "))
}

// first keeps the beginning of what QEMU says.
type first struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (f *first) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.b.Len() < 4096 {
		f.b.Write(p)
	}
	return len(p), nil
}

func (f *first) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimSpace(f.b.String())
}
