package debian

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Userland is what the guests of the lab have: rdma-core with its programs and
// perftest, and what shell scripts take for granted.
var Userland = strings.Fields(`rdma-core ibverbs-providers libibverbs1 librdmacm1 ibverbs-utils rdmacm-utils perftest iproute2 kmod
	bash coreutils findutils grep sed hostname procps mawk util-linux libc6 ca-certificates`)

// mergeUsr makes the links that a merged /usr has before anything is unpacked.
func mergeUsr(dir, arch string) error {
	links := []string{"bin", "sbin", "lib"}
	if arch == "amd64" {
		links = append(links, "lib64") // where its dynamic linker is
	}
	for _, l := range links {
		if err := os.MkdirAll(filepath.Join(dir, "usr", l), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+l, filepath.Join(dir, l)); err != nil {
			return err
		}
	}
	return nil
}

// alternatives are the links of update-alternatives(1) that programs of a guest
// rely on, each with what it may lead to, best first.
var alternatives = []struct {
	link    string
	targets []string
}{
	{"usr/bin/awk", []string{"usr/bin/gawk", "usr/bin/mawk", "usr/bin/original-awk"}},
	{"usr/bin/nawk", []string{"usr/bin/gawk", "usr/bin/mawk"}},
	{"usr/bin/which", []string{"usr/bin/which.debianutils"}},
	{"usr/bin/pager", []string{"usr/bin/less", "usr/bin/more"}},
	{"usr/bin/editor", []string{"usr/bin/nano", "usr/bin/vim.tiny"}},
	{"usr/bin/nc", []string{"usr/bin/nc.openbsd", "usr/bin/nc.traditional"}},
}

// finish does what the maintainer scripts of the packages would have done, as
// far as tests in a guest can tell.
func finish(ctx context.Context, dir, arch string, packages []*Package) error {
	err := errors.Join(
		users(dir),
		alternativeLinks(dir),
		certificates(dir),
		status(dir, packages),
		instead(dir, "var/run", "/run"),
		instead(dir, "var/lock", "/run/lock"),
		os.MkdirAll(filepath.Join(dir, "usr/lib/modules"), 0o755),
	)
	if err != nil {
		return err
	}
	linkerCache(ctx, dir, arch)
	return ctx.Err()
}

// users takes over what package base-passwd would, and lets "localhost" be
// found.
func users(dir string) error {
	var errs []error
	for to, from := range map[string]string{
		"etc/passwd":        "usr/share/base-passwd/passwd.master",
		"etc/group":         "usr/share/base-passwd/group.master",
		"etc/nsswitch.conf": "usr/share/base-files/nsswitch.conf",
	} {
		b, err := os.ReadFile(filepath.Join(dir, from))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err, write(dir, to, b))
	}
	errs = append(errs, write(dir, "etc/hosts", []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")))
	return errors.Join(errs...)
}

func alternativeLinks(dir string) error {
	for _, a := range alternatives {
		for _, t := range a.targets {
			if exists(filepath.Join(dir, a.link)) || !exists(filepath.Join(dir, t)) {
				continue
			}
			through := "etc/alternatives/" + filepath.Base(a.link)
			if err := errors.Join(link(dir, through, "/"+t), link(dir, a.link, "/"+through)); err != nil {
				return err
			}
		}
	}
	return nil
}

// certificates makes what update-ca-certificates(8) would.
func certificates(dir string) error {
	var all []byte
	from := filepath.Join(dir, "usr/share/ca-certificates")
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all = append(all, b...)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, write(dir, "etc/ssl/certs/ca-certificates.crt", all))
}

// status lets dpkg-query(1) tell what is there. What an index says of the
// package's file has no place in it.
func status(dir string, packages []*Package) error {
	var s strings.Builder
	for _, p := range packages {
		s.WriteString("Status: install ok installed\n")
		for line := range strings.Lines(strings.TrimSpace(p.text) + "\n") {
			switch name, _, _ := strings.Cut(line, ":"); name {
			case "Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512":
			default:
				s.WriteString(line)
			}
		}
		s.WriteString("\n")
	}
	return write(dir, "var/lib/dpkg/status", []byte(s.String()))
}

// linkerCache lets the root's own ldconfig make /etc/ld.so.cache. It spares
// guests many looks for each library; they do without it when this host cannot
// run that program: Debian's dynamic linker knows the folders of its libraries.
func linkerCache(ctx context.Context, dir, arch string) {
	if arch != runtime.GOARCH {
		return
	}
	cmd := exec.CommandContext(ctx, "/usr/sbin/ldconfig")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	if os.Geteuid() != 0 {
		// Without privileges, in a user namespace, where it may be root.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	_ = cmd.Run()
}

// link makes a symbolic link unless something is there.
func link(dir, name, target string) error {
	at := filepath.Join(dir, name)
	if exists(at) {
		return nil
	}
	return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, at))
}

// instead makes a symbolic link in the place of an empty folder.
func instead(dir, name, target string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return link(dir, name, target)
}

func write(dir, name string, content []byte) error {
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return os.WriteFile(at, content, 0o644)
}
