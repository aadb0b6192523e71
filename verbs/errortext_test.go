//go:build linux

package verbs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// An error names the request and the queue pair once, with the likely cause, on one line.
func TestErrorText(t *testing.T) {
	wc := &WCError{Status: WCRemoteAccess, QPNum: 0x12, ID: 0xf41aa3}
	err := opError("WRITE on", "qp 0x12 to qp 0x13 at 10.77.0.1", wc)
	require.Contains(t, err.Error(), "verbs: WRITE on qp 0x12 to qp 0x13 at 10.77.0.1: remote access error (the peer does not allow it: a wrong or old rkey")
	require.NotContains(t, err.Error(), "0xf41aa3")
	require.ErrorIs(t, err, WCRemoteAccess)
	require.Contains(t, class(WCFlushed, opError("use", "qp 0x12", wc)).Error(), "remote access error (the peer")
	require.Contains(t, wc.Error(), "verbs: work request 0xf41aa3 on qp 0x12: remote access error (")
	wc.VendorErr = 0x88
	require.Contains(t, wc.Error(), "; vendor error 0x88)")
	require.NotContains(t, opError("close", "link", errors.Join(wc, ErrInUse)).Error(), "\n")
}

func TestMissingDeviceFile(t *testing.T) {
	root := t.TempDir()
	require.Equal(t, noDevices, whyNone(root))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/class/infiniband_verbs/uverbs3"), 0o755))
	require.Contains(t, whyNone(root), "/dev/infiniband/uverbs3 is missing")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "dev/infiniband/uverbs3"), 0o755))
	require.Equal(t, noDevices, whyNone(root))
}

// A process that may lock any memory has no limit to raise: the device is out of something.
func TestMemlockOfThePrivileged(t *testing.T) {
	const first = "         0          0 4294967295\n"
	require.True(t, locksAll("Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n", first))
	require.False(t, locksAll("Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n", first))
	require.False(t, locksAll("Name:\tx\nCapEff:\t000001ffffffffff\n", "0 1000 1\n"), "of a user namespace")
	status, _ := os.ReadFile("/proc/thread-self/status") // capabilities are a thread's
	users, _ := os.ReadFile("/proc/self/uid_map")
	if !locksAll(string(status), string(users)) {
		t.Skip("needs CAP_IPC_LOCK")
	}
	require.NotErrorIs(t, registerError("pd 1", 4096, syscall.ENOMEM), ErrMemlock)
}
