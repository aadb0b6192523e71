//go:build linux

package rdmacm_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/rdmacm"
)

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(rig.Context(t), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// A device that is unplugged under a listener, a request and a connection.
func TestDeviceRemoval(t *testing.T) {
	if !lab.In() {
		t.Skip("makes and removes a device: only in the lab")
	}
	if os.Getenv("REMOVAL") == "" {
		// In a process of its own, with one heap: librdmacm 44.0 can lose all its
		// devices with one (forgetsRemoved), if their addresses are far apart.
		cmd := exec.CommandContext(rig.Context(t), os.Args[0], "-test.run=^TestDeviceRemoval$", "-test.v")
		cmd.Env = append(os.Environ(), "REMOVAL=1", "GLIBC_TUNABLES=glibc.malloc.arena_max=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestDeviceRemoval")
		return
	}
	rig.CMPorts(t)
	run(t, "ip", "link", "add", "removable", "type", "veth", "peer", "name", "removable1")
	t.Cleanup(func() { run(t, "ip", "link", "del", "removable") })
	run(t, "ip", "addr", "add", "10.78.0.1/24", "dev", "removable")
	run(t, "ip", "link", "set", "removable", "up")
	run(t, "ip", "link", "set", "removable1", "up")
	run(t, "rdma", "link", "add", "rxe9", "type", "rxe", "netdev", "removable")

	m, ctx := rig.NewCM(t), rig.Context(t)
	l, err := m.Listen("10.78.0.1:0", rdmacm.ListenConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	type accepted struct {
		conn *rdmacm.Conn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err != nil {
			got <- accepted{nil, err}
			return
		}
		c, err := r.Accept(ctx, rdmacm.ConnConfig{})
		got <- accepted{c, err}
	}()
	a, err := m.Dial(ctx, l.Addr().String(), rdmacm.DialConfig{})
	require.NoError(t, err)
	b := <-got
	require.NoError(t, b.err)
	t.Cleanup(func() { require.NoError(t, b.conn.Close()) })
	require.Equal(t, "rxe9", a.Device().Name())
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Accept(context.Background())
		waiting <- err
	}()

	// The kernel may wait for the program to let go of the device.
	gone := make(chan error, 1)
	go func() {
		out, err := exec.Command("rdma", "link", "delete", "rxe9").CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		gone <- err
	}()
	for _, c := range []*rdmacm.Conn{a, b.conn} {
		select {
		case <-c.Done():
		case <-time.After(rig.Timeout):
			t.Fatal("no event")
		}
	}
	require.ErrorIs(t, <-waiting, rdmacm.ErrDeviceRemoved)
	// The end that goes first says goodbye to the other, which goes too.
	require.True(t, errors.Is(a.Err(), rdmacm.ErrDeviceRemoved) || errors.Is(b.conn.Err(), rdmacm.ErrDeviceRemoved))
	require.NoError(t, l.Close())
	require.NoError(t, a.Close())
	require.NoError(t, b.conn.Close())
	select {
	case err := <-gone:
		require.NoError(t, err)
	case <-time.After(rig.Timeout):
		t.Fatal("the kernel waits for somebody to let go of the device")
	}
	require.NoError(t, a.Device().Close())
}
