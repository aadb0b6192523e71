//go:build linux

// Package guest is the init process of a guest: it brings up the machine, lays
// a writable root over the host's, makes the topology and then runs what the
// launcher asks for.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/topo"
)

// IsInit tells whether this process is the init process of a guest.
func IsInit() bool {
	if os.Getpid() != 1 {
		return false
	}
	_, err := os.Stat("/job.json")
	return err == nil
}

// Main never returns: a guest whose init ends panics, and says so on the
// console.
func Main() {
	err := boot()
	fmt.Println("rxelab: init:", err)
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}

func boot() error {
	var job proto.Job
	b, err := os.ReadFile("/job.json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &job); err != nil {
		return err
	}
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
	s := &server{job: job, ports: ports, control: proto.NewConn(ports[proto.PortControl]), waiting: map[uint64]chan proto.Message{}}
	err = enterRoot(job)
	if err == nil {
		err = prepare(job)
	}
	ready := proto.Message{Op: proto.OpReady}
	if err != nil {
		ready.Error = err.Error()
	}
	if err := s.control.Send(ready); err != nil {
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
		err = unix.FinitModule(int(f.Fd()), "", 0)
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
	for end := time.Now().Add(5 * time.Second); len(ports) < 4 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
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
	if len(ports) < 4 {
		return nil, fmt.Errorf("%d of 4 virtio serial ports", len(ports))
	}
	return ports, nil
}

const plan9 = "trans=virtio,version=9p2000.L,msize=1048576"

// enterRoot makes the host's root, under a layer of memory, the root of this
// process and its children.
func enterRoot(job proto.Job) error {
	mounts := []mount{
		{"root", "/low", "9p", unix.MS_RDONLY, plan9 + ",cache=loose"},
		{"tmpfs", "/up", "tmpfs", 0, ""},
	}
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	for _, d := range []string{"/up/upper", "/up/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := (mount{"overlay", "/root", "overlay", 0, "lowerdir=/low,upperdir=/up/upper,workdir=/up/work"}).do(); err != nil {
		return err
	}
	for _, d := range []string{"proc", "sys", "dev"} {
		if err := (mount{"/" + d, "/root/" + d, "", unix.MS_MOVE, ""}).do(); err != nil {
			return err
		}
	}
	if err := unix.Chdir("/root"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	inside := []mount{
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		{"devpts", "/dev/pts", "devpts", 0, "ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
		{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		// For modprobe, by the kernel or by hand; needs kmod on the host.
		{job.Modules, filepath.Join("/lib/modules", filepath.Base(job.Modules)), "", unix.MS_BIND, ""},
	}
	for i, dir := range job.Shares {
		inside = append(inside, mount{fmt.Sprint("share", i), dir, "9p", 0, plan9 + ",cache=mmap"})
	}
	for _, m := range inside {
		if err := m.do(); err != nil {
			return err
		}
	}
	return os.MkdirAll("/run/netns", 0o755)
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
	return nil
}
