package lab

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/topo"
)

// InNamespace runs a part of a test in a network namespace of its own, whose only
// interface is lo, up, with the MTU. Netlink sockets and queries of the part see that
// namespace if it uses no other goroutine. It skips the test without privileges.
func InNamespace(t *testing.T, mtu int, part func()) {
	t.Helper()
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		done <- err
		if err != nil {
			return
		}
		if err := topo.SetUp("lo", true); err != nil {
			t.Error(err)
			return
		}
		if err := topo.SetMTU("lo", mtu); err != nil {
			t.Error(err)
			return
		}
		part()
	}()
	if err := <-done; err != nil {
		t.Skip("cannot make a network namespace: ", err)
	}
	<-ended
	if t.Skipped() {
		t.SkipNow()
	}
	if t.Failed() {
		t.FailNow()
	}
}
