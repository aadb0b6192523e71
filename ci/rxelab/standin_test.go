//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// Guests that misbehave on demand, without a virtual machine: this binary stands
// in for QEMU, and for the init process behind its serial ports. The launcher is
// all real, in a process of its own.

const (
	asQEMU     = "qemu-system-x86_64"
	asLauncher = "RXELAB_TEST_LAUNCHER"
	behaviour  = "RXELAB_TEST_GUEST"
)

// modulesOfGuests are those that a kernel for guests must have.
const modulesOfGuests = "virtio_pci virtio_console virtio_net 9pnet_virtio 9p overlay rdma_rxe ib_uverbs rdma_ucm veth ifb" +
	" sch_netem sch_tbf sch_ingress act_mirred cls_matchall 8021q macvlan"

// emptyKernel is a kernel package in which all modules are built in.
func emptyKernel(t *testing.T) string {
	dir := t.TempDir()
	modules := filepath.Join(dir, "lib", "modules", "6.0-none")
	require.NoError(t, os.MkdirAll(filepath.Join(modules, "kernel"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "boot", "vmlinuz-6.0-none"), 0o755)) // QEMU cannot read that
	var builtin strings.Builder
	for _, m := range strings.Fields(modulesOfGuests) {
		fmt.Fprintf(&builtin, "kernel/%s.ko\n", m)
	}
	require.NoError(t, os.WriteFile(filepath.Join(modules, "modules.builtin"), []byte(builtin.String()), 0o644))
	return dir
}

// sharedCache has the initramfs of this binary, which is made once.
var sharedCache = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "rxelab-test-")
	if err != nil {
		panic(err)
	}
	return dir
})

// onStandIn is a run of rxelab on stand-ins that behave as named.
func onStandIn(t *testing.T, how string, args ...string) *labRun {
	self, err := os.Executable()
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, asQEMU)))
	cacheDir := sharedCache()
	r := &labRun{cmd: exec.Command(self, append([]string{"-accel", "tcg"}, args...)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.Env = append(os.Environ(), asLauncher+"=1", behaviour+"="+how, "PATH="+bin+":"+os.Getenv("PATH"),
		"LAB_KERNEL="+emptyKernel(t), "LAB_CACHE="+cacheDir)
	r.cmd.WaitDelay = 10 * time.Second
	t.Cleanup(func() {
		if r.cmd.Process != nil {
			r.cmd.Process.Kill()
		}
		require.NotContains(t, r.stderr.String(), "DATA RACE")
		left, err := filepath.Glob(filepath.Join(cacheDir, "run", "*"))
		require.NoError(t, err)
		require.Empty(t, left, "the folder of the run is left over")
	})
	return r
}

// standIn is a guest as seen from inside.
type standIn struct {
	host, boot    int
	control       *proto.Conn
	stdin         *os.File
	stdout        *os.File
	console, out  string
	mu            sync.Mutex
	waiting       map[uint64]chan proto.Message
	signals, last uint64
}

// beQEMU boots and then behaves as the environment says.
func beQEMU(args []string) {
	g := &standIn{waiting: make(map[uint64]chan proto.Message)}
	fds := make(map[string]int)
	for _, a := range args {
		var fd int
		for _, p := range proto.Ports {
			if n, _ := fmt.Sscanf(a, "socket,id="+p+",fd=%d", &fd); n == 1 {
				fds[p] = fd
			}
		}
		if path, ok := strings.CutPrefix(a, "file,id=console,path="); ok {
			g.console = path
			fmt.Sscanf(filepath.Base(filepath.Dir(path)), "host%d-boot%d", &g.host, &g.boot)
		}
		if path, ok := strings.CutPrefix(a, "local,path="); ok {
			if path, ok = strings.CutSuffix(path, ",mount_tag=out,security_model=none"); ok {
				g.out = path
			}
		}
	}
	g.control = proto.NewConn(os.NewFile(uintptr(fds[proto.PortControl]), "control"))
	g.stdin = os.NewFile(uintptr(fds[proto.PortStdin]), "stdin")
	g.stdout = os.NewFile(uintptr(fds[proto.PortStdout]), "stdout")
	os.WriteFile(g.console, []byte("the stand-in's console\n"), 0o644)
	b := behaviours[os.Getenv(behaviour)]
	if b.boot != nil {
		b.boot(g)
	}
	g.control.Send(proto.Message{Op: proto.OpInit})
	g.control.Receive()
	g.control.Send(proto.Message{Op: proto.OpReady})
	if b.ready != nil {
		b.ready(g)
	}
	for {
		m, err := g.control.Receive()
		if err != nil {
			os.Exit(0)
		}
		switch m.Op {
		case proto.OpDone:
			g.mu.Lock()
			g.waiting[m.ID] <- m
			g.mu.Unlock()
		case proto.OpSignal:
			g.mu.Lock()
			g.signals++
			g.mu.Unlock()
		default:
			go func() {
				var reply proto.Message
				if m.Op == proto.OpExec {
					reply = b.exec(g, m)
				}
				reply.ID, reply.Op = m.ID, proto.OpDone
				g.control.Send(reply)
			}()
		}
	}
}

// ask is what a program in the guest asks of the launcher.
func (g *standIn) ask(op string, host int) <-chan proto.Message {
	ch := make(chan proto.Message, 1)
	g.mu.Lock()
	g.last++
	id := g.last
	g.waiting[id] = ch
	g.mu.Unlock()
	g.control.Send(proto.Message{ID: id, Op: op, Host: host})
	return ch
}

type conduct struct {
	boot, ready func(*standIn)
	exec        func(*standIn, proto.Message) proto.Message
}

func failed(format string, args ...any) proto.Message {
	return proto.Message{Code: 9, Error: fmt.Sprintf(format, args...)}
}

const someOutput = 150_000 // more than a pipe holds, less than a socket

var behaviours = map[string]conduct{
	"keeps a file": {exec: func(g *standIn, m proto.Message) proto.Message {
		os.WriteFile(filepath.Join(g.out, "0"), []byte("kept"), 0o644)
		return proto.Message{}
	}},
	"dies after its output": {exec: func(g *standIn, m proto.Message) proto.Message {
		g.stdout.Write(make([]byte, someOutput))
		os.Exit(1)
		return m
	}},
	"hangs in its boot": {boot: func(*standIn) { time.Sleep(time.Hour) }},
	"hears nothing":     {ready: func(*standIn) { time.Sleep(time.Hour) }},
	"reads all of its input": {exec: func(g *standIn, m proto.Message) proto.Message {
		proto.ReceiveInput(os.Stderr, g.stdin)
		return proto.Message{}
	}},
	"counts its signals": {exec: func(g *standIn, m proto.Message) proto.Message {
		n, _ := g.stdout.WriteString("!")
		time.Sleep(2 * time.Second)
		g.mu.Lock()
		defer g.mu.Unlock()
		return proto.Message{Code: 40 + int(g.signals), OutBytes: int64(n)}
	}},
	"host 1 says something, host 0 waits": {exec: func(g *standIn, m proto.Message) proto.Message {
		if g.host == 0 {
			time.Sleep(time.Hour)
		}
		n, _ := g.stdout.WriteString("here I am\n")
		return proto.Message{OutBytes: int64(n)}
	}},
	"host 1 fails, host 0 waits for it": {exec: func(g *standIn, m proto.Message) proto.Message {
		if g.host == 0 {
			time.Sleep(time.Hour)
		}
		return proto.Message{Code: 9}
	}},
	"starts host 1 twice": {boot: slowSecondBoot, exec: func(g *standIn, m proto.Message) proto.Message {
		if r := <-g.ask(proto.OpKill, 1); r.Error != "" {
			return failed("kill: %s", r.Error)
		}
		one, two := g.ask(proto.OpStart, 1), g.ask(proto.OpStart, 1)
		first, second := <-one, <-two
		if (first.Error == "") == (second.Error == "") || !strings.Contains(first.Error+second.Error, "is running") {
			return failed("started: %q, %q", first.Error, second.Error)
		}
		return proto.Message{}
	}},
	"kills host 1 while it starts": {boot: slowSecondBoot, exec: func(g *standIn, m proto.Message) proto.Message {
		if g.host == 1 {
			return proto.Message{}
		}
		<-g.ask(proto.OpKill, 1)
		started := g.ask(proto.OpStart, 1)
		time.Sleep(300 * time.Millisecond)
		if r := <-g.ask(proto.OpKill, 1); r.Error != "" {
			return failed("kill: %s", r.Error)
		}
		<-started
		if r := <-g.ask(proto.OpExec, 1); r.Error == "" {
			return failed("host 1 runs though it was killed")
		}
		return proto.Message{}
	}},
	"leaves while host 1 starts": {boot: slowSecondBoot, exec: func(g *standIn, m proto.Message) proto.Message {
		<-g.ask(proto.OpKill, 1)
		g.ask(proto.OpStart, 1)
		time.Sleep(300 * time.Millisecond)
		return proto.Message{}
	}},
}

func slowSecondBoot(g *standIn) {
	if g.boot == 2 {
		time.Sleep(time.Second)
	}
}

func TestKeptFileThatCannotBeWritten(t *testing.T) {
	folder := t.TempDir()
	r := onStandIn(t, "keeps a file", "-topo", "none", "-keep", folder, "true")
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "bring back "+folder)
}

// What a guest wrote before it died is what tells why.
func TestOutputOfAGuestThatDies(t *testing.T) {
	r := onStandIn(t, "dies after its output", "-topo", "none", "true")
	r.cmd.Stdout = nil
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 1))
	require.NoError(t, err)
	time.Sleep(time.Second)
	n, err := io.Copy(io.Discard, out)
	require.NoError(t, err)
	r.exit(t, exitLab)
	require.EqualValues(t, someOutput, 1+n)
	require.Contains(t, r.stderr.String(), "the guest is gone")
}

// Where the command fails on one host, the others do not wait for that one for ever.
func TestOthersEndAfterAFailure(t *testing.T) {
	r := onStandIn(t, "host 1 fails, host 0 waits for it", "-topo", "hosts=2", "-all", "true")
	r.run(t, 9)
	require.Contains(t, r.stderr.String(), "failed on host 1 and goes on elsewhere")
	require.Contains(t, r.stderr.String(), errAlone.Error())
}

// A time limit that ends a boot shows how far it came.
func TestBootThatHangsShowsItsConsole(t *testing.T) {
	r := onStandIn(t, "hangs in its boot", "-topo", "none", "-timeout", "15s", "true")
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "time limit")
	require.Contains(t, r.stderr.String(), "the stand-in's console")
}

// A guest that does not read its control port cannot keep the launcher from
// ending: neither at the time limit nor at the second signal.
func TestGuestThatHearsNothing(t *testing.T) {
	args := []string{"-topo", "none"}
	for range 10 {
		args = append(args, "-env", "X="+strings.Repeat("x", 100_000))
	}
	r := onStandIn(t, "hears nothing", append(append([]string{"-timeout", "3s"}, args...), "true")...)
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "time limit")

	r = onStandIn(t, "hears nothing", append(args, "true")...)
	require.NoError(t, r.cmd.Start())
	// The launcher takes signals before it starts a guest, and the command a while after that.
	require.Eventually(t, func() bool { return len(children(r.cmd.Process.Pid)) > 0 }, time.Minute, 20*time.Millisecond)
	time.Sleep(2 * time.Second)
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	r.exit(t, exitLab)
	require.Contains(t, r.stderr.String(), "interrupted")
}

// Input that cannot be read is not the same as its end.
func TestInputThatCannotBeRead(t *testing.T) {
	r := onStandIn(t, "reads all of its input", "-topo", "none", "true")
	folder, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer folder.Close()
	r.cmd.Stdin = folder
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "standard input")
}

// What nohup and background jobs of scripts ignore stays ignored.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	// This test may itself run under nohup, and its children could not undo that. A
	// signal that is caught here has its default in them.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	for trap, want := range map[string]int{"": 40, "-": 41} {
		r := onStandIn(t, "counts its signals", "-topo", "none", "true")
		r.cmd.Args = append([]string{"sh", "-c", `trap "` + trap + `" HUP; exec "$0" "$@"`, r.cmd.Path}, r.cmd.Args[1:]...)
		r.cmd.Path = "/bin/sh"
		r.cmd.Stdout = nil
		out, err := r.cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, r.cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
		r.exit(t, want)
	}
}

// With -all a reader that has left ends the run, though other hosts wait.
func TestOutputOfOneHostCannotBeWritten(t *testing.T) {
	r := onStandIn(t, "host 1 says something, host 0 waits", "-timeout", "20s", "-topo", "hosts=2", "-all", "true")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	r.cmd.Stdout = full
	r.run(t, exitLab)
	require.Contains(t, r.stderr.String(), "standard output")
	require.NotContains(t, r.stderr.String(), "time limit")
}

// Requests for one host are done one after the other, and none outlives the run.
func TestRequestsForOneHost(t *testing.T) {
	for _, how := range []string{"starts host 1 twice", "kills host 1 while it starts", "leaves while host 1 starts"} {
		t.Run(how, func(t *testing.T) {
			onStandIn(t, how, "-topo", "hosts=2", "true").run(t, 0)
		})
	}
}
