//go:build linux

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// root is the writable root over the host's: programs change what they like,
// and the host's files stay as they are.
type root struct {
	layers []layer
	out    int      // descriptor of the folder that is the launcher's too
	shares []string // folders in which changes are the host's at once
}

// layer is one overlay: what was written below at is in upper.
type layer struct {
	at    string
	upper int // descriptor of a folder outside of the root
}

const plan9 = "trans=virtio,version=9p2000.L,msize=1048576"

// Folders of the host that guests have for themselves.
var private = []string{"/run", "/dev/shm"}

// enterRoot makes the host's root, under a layer of memory, the root of this
// process and its children.
func enterRoot(job proto.Job) (*root, error) {
	r := &root{shares: proto.Strings(job.Shares)}
	for _, m := range []mount{
		{"root", "/low", "9p", unix.MS_RDONLY, plan9 + ",cache=loose"},
		{"tmpfs", "/up", "tmpfs", 0, ""},
		{"out", "/out", "9p", 0, plan9 + ",cache=none"},
	} {
		if err := m.do(); err != nil {
			return nil, err
		}
	}
	var err error
	if r.out, err = unix.Open("/out", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if err := r.system(string(job.Root)); err != nil {
		return nil, err
	}
	for _, d := range []string{"proc", "sys", "dev"} {
		if err := (mount{"/" + d, "/root/" + d, "", unix.MS_MOVE, ""}).do(); err != nil {
			return nil, err
		}
	}
	for _, dir := range private {
		if err := (mount{"tmpfs", "/root" + dir, "tmpfs", 0, "mode=1777"}).do(); err != nil {
			return nil, err
		}
	}
	// A program that lies, or runs, in such a folder of the host finds it.
	for _, dir := range proto.Strings(job.Needs) {
		if isPrivate(dir) {
			if err := r.overlay(dir, dir); err != nil {
				return nil, err
			}
		}
	}
	if err := change("/root"); err != nil {
		return nil, err
	}
	inside := []mount{
		{"devpts", "/dev/pts", "devpts", 0, "ptmxmode=666"},
		{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		// For modprobe, by the kernel or by hand; needs kmod on the host.
		{string(job.Modules), filepath.Join("/lib/modules", filepath.Base(string(job.Modules))), "", unix.MS_BIND, ""},
	}
	for i, dir := range r.shares {
		inside = append(inside, mount{fmt.Sprint("share", i), dir, "9p", 0, plan9 + ",cache=mmap"})
	}
	for _, m := range inside {
		if err := m.do(); err != nil {
			return nil, err
		}
	}
	return r, os.MkdirAll("/run/netns", 0o755)
}

// system makes the root: the host's, or that of another system, in which all is
// the host's that does not belong to the system: homes, sources, what is built.
func (r *root) system(dir string) error {
	if err := r.overlay("/"+dir, "/"); err != nil || dir == "" {
		return err
	}
	list, err := os.ReadDir("/low")
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.IsDir() && !slices.Contains(systemDirs, e.Name()) {
			if err := r.overlay("/"+e.Name(), "/"+e.Name()); err != nil {
				return err
			}
		}
	}
	return r.overlay("/usr/local", "/usr/local")
}

// systemDirs are folders of a root that belong to the system, not to its users.
var systemDirs = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "lost+found", "proc", "run", "sbin", "sys", "usr", "var"}

// overlay lays memory over a folder of the host, for the guest to find at a
// place of its root.
func (r *root) overlay(dir, at string) error {
	up := fmt.Sprintf("/up/%d", len(r.layers))
	for _, d := range []string{up + "/upper", up + "/work"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	// The options end at a comma, so the folder goes by a name of ours.
	low := up + "/low"
	if err := (mount{filepath.Join("/low", dir), low, "", unix.MS_BIND, ""}).do(); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", low, up, up)
	if err := (mount{"overlay", filepath.Join("/root", at), "overlay", 0, options}).do(); err != nil {
		return err
	}
	fd, err := unix.Open(up+"/upper", unix.O_PATH|unix.O_CLOEXEC, 0)
	r.layers = append(r.layers, layer{filepath.Clean(at), fd})
	return err
}

// change makes dir the root of this process.
func change(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}
