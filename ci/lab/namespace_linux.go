package lab

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/topo"
)

// InNamespace runs a part of a test in a network namespace of its own, with no interface
// but lo, up, with the MTU. Netlink sockets and queries of the part see that
// namespace if it uses no other goroutine. It skips the test without privileges.
func InNamespace(t *testing.T, mtu int, part func()) {
	t.Helper()
	onThread(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() {
		if err := topo.SetUp("lo", true); err != nil {
			t.Error(err)
			return
		}
		if err := topo.SetMTU("lo", mtu); err != nil {
			t.Error(err)
			return
		}
		part()
	})
}

// Within is InNamespace in one that exists, such as [topo.SpareNamespace].
func Within(t *testing.T, name string, part func()) {
	t.Helper()
	onThread(t, func() error {
		f, err := os.Open("/run/netns/" + name)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
	}, part)
}

// onThread runs a part of a test on a thread that ends with it.
func onThread(t *testing.T, enter func() error, part func()) {
	t.Helper()
	entered, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		err := enter()
		entered <- err
		if err == nil {
			part()
		}
	}()
	if err := <-entered; err != nil {
		t.Skip("cannot enter a network namespace: ", err)
	}
	<-ended
	if t.Skipped() {
		t.SkipNow()
	}
	if t.Failed() {
		t.FailNow()
	}
}
