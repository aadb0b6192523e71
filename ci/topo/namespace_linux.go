package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaces are kept where "ip netns" looks for them.
const namespaces = "/run/netns"

type namespace struct{ file *os.File }

func openNamespace(name string) (*namespace, error) {
	f, err := os.Open(filepath.Join(namespaces, name))
	if err != nil {
		return nil, err
	}
	return &namespace{f}, nil
}

func (n *namespace) fd() int { return int(n.file.Fd()) }
func (n *namespace) close()  { n.file.Close() }

// makeNamespace makes a network namespace and runs setup inside it.
func makeNamespace(name string, setup func() error) error {
	path := filepath.Join(namespaces, name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	return onOwnThread(func() (err error) {
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer home.Close()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		// The main thread of a process cannot end: it would keep the namespace.
		defer func() { err = errors.Join(err, unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)) }()
		if err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep namespace %s: %w", name, err)
		}
		return setup()
	})
}

// onOwnThread runs f on a thread that ends afterwards, with whatever f did to
// it.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
