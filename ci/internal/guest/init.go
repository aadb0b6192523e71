//go:build linux

// Package guest is the init process of a guest: it brings up the machine, lays
// a writable root over the host's, makes the topology and then runs what the
// launcher asks for.
package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/topo"
)

// IsInit reports whether this process is the init process of a guest.
func IsInit() bool {
	if os.Getpid() != 1 {
		return false
	}
	_, err := os.Stat("/modules")
	return err == nil
}

// Main never returns: a guest panics when its init ends, and says so on the
// console.
func Main() {
	err := boot()
	fmt.Println("rxelab: init:", err)
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

// boot says on the control port that this process runs, hears its job there,
// does it, and then runs what the launcher asks for.
func boot() error {
	for _, m := range []mount{{"proc", "/proc", "proc", 0, ""}, {"sysfs", "/sys", "sysfs", 0, ""}, {"devtmpfs", "/dev", "devtmpfs", 0, ""}} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := insertModules("/modules"); err != nil {
		return err
	}
	ports, err := openPorts()
	if err != nil {
		return err
	}
	control := proto.NewConn(ports[proto.PortControl])
	if err := control.Send(proto.Message{Op: proto.OpInit}); err != nil {
		return err
	}
	msg, err := control.Receive()
	if err != nil {
		return err
	}
	if msg.Op != proto.OpJob || msg.Job == nil {
		return fmt.Errorf("the launcher says %q, not what to do", msg.Op)
	}
	s := &server{job: *msg.Job, ports: ports, control: control, waiting: map[uint64]chan proto.Message{}}
	s.root, err = enterRoot(s.job)
	if err == nil {
		err = prepare(s.job)
	}
	ready := proto.Message{Op: proto.OpReady}
	if err != nil {
		ready.Error = err.Error()
	}
	if err := control.Send(ready); err != nil {
		return err
	}
	return s.serve()
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	return nil
}

// insertModules inserts them in the order of their names.
func insertModules(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		parameters := ""
		if strings.HasSuffix(e.Name(), "-ifb.ko") {
			parameters = "numifbs=0" // topologies make those that they need
		}
		err = unix.FinitModule(int(f.Fd()), parameters, 0)
		f.Close()
		os.Remove(path) // its memory is the guest's
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("insert %s: %w", e.Name(), err)
		}
	}
	return nil
}

// openPorts opens the virtio serial ports by their names.
func openPorts() (map[string]*os.File, error) {
	ports := make(map[string]*os.File)
	const class = "/sys/class/virtio-ports"
	for end := time.Now().Add(30 * time.Second); len(ports) < len(proto.Ports) && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		list, _ := os.ReadDir(class)
		for _, e := range list {
			b, _ := os.ReadFile(filepath.Join(class, e.Name(), "name"))
			name := strings.TrimSpace(string(b))
			if name == "" || ports[name] != nil {
				continue
			}
			// Not through os.OpenFile: these devices poll as hung up until the
			// host side is open, so they stay out of the poller.
			fd, err := unix.Open(filepath.Join("/dev", e.Name()), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			ports[name] = os.NewFile(uintptr(fd), name)
		}
	}
	if len(ports) < len(proto.Ports) {
		return nil, fmt.Errorf("%d of %d virtio serial ports", len(ports), len(proto.Ports))
	}
	return ports, nil
}

// prepare sets limits and makes the topology.
func prepare(job proto.Job) error {
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return err
	}
	files := unix.Rlimit{Cur: 1024, Max: 1 << 16} // a target of package dc takes four
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if err := unix.Sethostname(fmt.Appendf(nil, "lab%d", job.Host)); err != nil {
		return err
	}
	if err := topo.Build(job.Topology, job.Host, job.Hosts); err != nil {
		return fmt.Errorf("topology %s: %w", job.Topology, err)
	}
	if job.Topology == "hosts" {
		return topo.Echo(topo.Addr(job.Host))
	}
	return nil
}
