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
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/internal/kernel"
	"github.com/goverbs/goverbs/ci/internal/proto"
)

// Config is what the guests of one run have in common.
type Config struct {
	Kernel *kernel.Tree
	Init   []byte // the init program: a static binary
	Accel  string // "kvm" or "tcg"
	Clock  string // "wall" or "instructions"
	SMP    int    // virtual CPUs
	Memory int    // MiB
	CPU    string // QEMU's name of the CPU model; empty for the clock's default
	Shares []string
	Topo   string
	Hosts  int
	Dir    string // folder for sockets and logs of this run
}

// Machine is one running guest.
type Machine struct {
	Host    int
	Control *proto.Conn
	Stdin   io.WriteCloser
	Stdout  io.Reader
	Stderr  io.Reader

	console string
	exited  chan struct{} // closed when QEMU has ended
	cancel  context.CancelFunc
	conns   []net.Conn
}

// ErrBoot: the guest ended or the time ran out before it was ready.
var ErrBoot = errors.New("the guest did not boot")

// Start boots a guest and waits until it is ready. netSocket, if not empty, is
// the unix socket of the switch that its network card is plugged into.
func Start(ctx context.Context, c *Config, host int, netSocket string) (*Machine, error) {
	dir := filepath.Join(c.Dir, fmt.Sprintf("host%d", host))
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	initrd, err := writeInitrd(c, host, dir)
	if err != nil {
		return nil, err
	}
	m := &Machine{Host: host, console: filepath.Join(dir, "console.log"), exited: make(chan struct{})}
	ports := []string{proto.PortControl, proto.PortStdin, proto.PortStdout, proto.PortStderr}
	listeners := make([]net.Listener, len(ports))
	for i, p := range ports {
		if listeners[i], err = net.Listen("unix", filepath.Join(dir, p)); err != nil {
			return nil, err
		}
		defer listeners[i].Close()
	}
	qemuCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	var stderr bytes.Buffer
	started := make(chan error, 1)
	go m.run(qemuCtx, c.args(host, dir, initrd, netSocket, ports), &stderr, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("qemu: %w", err)
	}
	fail := func(err error) (*Machine, error) {
		m.Kill()
		if msg := strings.TrimSpace(stderr.String()); msg != "" {
			err = fmt.Errorf("%w\nqemu: %s", err, msg)
		}
		return nil, fmt.Errorf("host %d: %w\n%s", host, err, m.ConsoleTail(25))
	}
	for i := range listeners {
		conn, err := m.accept(ctx, listeners[i])
		if err != nil {
			return fail(err)
		}
		m.conns = append(m.conns, conn)
	}
	m.Control = proto.NewConn(m.conns[0])
	m.Stdin, m.Stdout, m.Stderr = m.conns[1], m.conns[2], m.conns[3]
	if err := m.ready(ctx); err != nil {
		return fail(err)
	}
	return m, nil
}

// run keeps QEMU as its child. The kernel ends QEMU when the thread that
// started it ends, so that thread does nothing else and outlives it.
func (m *Machine) run(ctx context.Context, args []string, stderr *bytes.Buffer, started chan<- error) {
	defer close(m.exited)
	runtime.LockOSThread()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err := cmd.Start()
	started <- err
	if err == nil {
		cmd.Wait()
	}
}

func (m *Machine) accept(ctx context.Context, l net.Listener) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-m.exited:
			l.Close()
		case <-done:
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, ErrBoot
	}
	return conn, nil
}

func (m *Machine) ready(ctx context.Context) error {
	got := make(chan error, 1)
	go func() {
		msg, err := m.Control.Receive()
		switch {
		case err != nil:
			err = ErrBoot
		case msg.Op != proto.OpReady:
			err = fmt.Errorf("%w: it says %q", ErrBoot, msg.Op)
		case msg.Error != "":
			err = fmt.Errorf("%w: %s", ErrBoot, msg.Error)
		}
		got <- err
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBoot, context.Cause(ctx))
	}
}

// Exited is closed when the guest is gone.
func (m *Machine) Exited() <-chan struct{} { return m.exited }

// Kill ends the guest like a power failure and waits until it is gone.
func (m *Machine) Kill() {
	m.cancel()
	<-m.exited
	for _, c := range m.conns {
		c.Close()
	}
}

// Console is the log of the guest's console.
func (m *Machine) Console() []byte {
	b, _ := os.ReadFile(m.console)
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

func writeInitrd(c *Config, host int, dir string) (string, error) {
	base, err := baseImage(c.Kernel, c.Init)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(base)
	if err != nil {
		return "", err
	}
	job, err := jobImage(proto.Job{Topology: c.Topo, Clock: c.Clock, Host: host, Hosts: c.Hosts,
		Shares: c.Shares, Modules: c.Kernel.Modules})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "initrd")
	return path, os.WriteFile(path, append(b, job...), 0o600)
}

// cmdline is the guest kernel's. Emulated, 6.1 takes the time stamp counters of
// several CPUs for unreliable and the HPET for its clock: each reading of the
// time is then a system call and an exit to the emulator.
const cmdline = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic random.trust_cpu=on tsc=reliable"

// args is QEMU's command line.
func (c *Config) args(host int, dir, initrd, netSocket string, ports []string) []string {
	a := []string{"-nodefaults", "-display", "none", "-no-reboot", "-no-user-config",
		"-m", fmt.Sprint(c.Memory), "-smp", fmt.Sprint(c.SMP), "-kernel", c.Kernel.Image, "-initrd", initrd,
		"-append", cmdline,
		"-serial", "file:" + filepath.Join(dir, "console.log"),
		"-device", "virtio-rng-pci",
		"-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-serial-pci",
	}
	cpu := c.CPU
	switch {
	case c.Accel == "kvm":
		a = append(a, "-accel", "kvm")
		cpu = orDefault(cpu, "host")
	case c.Clock == "instructions":
		a = append(a, "-accel", "tcg,thread=single", "-icount", "shift=3,sleep=off")
		cpu = orDefault(cpu, "qemu64")
	default:
		a = append(a, "-accel", "tcg,thread=multi")
		cpu = orDefault(cpu, "max")
	}
	a = append(a, "-cpu", cpu)
	for _, p := range ports {
		a = append(a, "-chardev", fmt.Sprintf("socket,id=%s,path=%s", p, filepath.Join(dir, p)),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", p, p))
	}
	for i, s := range c.Shares {
		a = append(a, "-virtfs", fmt.Sprintf("local,path=%s,mount_tag=share%d,security_model=none,multidevs=remap", s, i))
	}
	if netSocket != "" {
		a = append(a, "-netdev", "stream,id=net0,server=off,addr.type=unix,addr.path="+netSocket,
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,mac=52:54:00:77:00:%02x,host_mtu=4200", host+1))
	}
	return a
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// ProbeKVM tells whether a guest boots with KVM: the device may be there and
// still not run a stock kernel. A negative answer is remembered until the host
// reboots.
func ProbeKVM(ctx context.Context, c Config) bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	cache, err := kernel.CacheDir()
	if err != nil {
		return false
	}
	note := filepath.Join(cache, "no-kvm")
	if b, err := os.ReadFile(note); err == nil && bytes.Equal(b, boot) {
		return false
	}
	c.Accel, c.Clock, c.Topo, c.Hosts, c.Shares, c.CPU = "kvm", "wall", "none", 1, nil, ""
	c.Dir = filepath.Join(c.Dir, "probe")
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	m, err := Start(ctx, &c, 0, "")
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			writeAtomic(note, boot)
		}
		return false
	}
	m.Kill()
	return true
}
