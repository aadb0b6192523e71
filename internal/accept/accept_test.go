//go:build linux

package accept

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const role = "ACCEPT_TEST_WITHOUT_FILES"

// A process that has no file left for a connection has it wait, and takes it when there is one
// again. The limit of files is the process's, so this is one of its own.
func TestNextWithoutFiles(t *testing.T) {
	if os.Getenv(role) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNextWithoutFiles$", "-test.v")
		cmd.Env = append(os.Environ(), role+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestNextWithoutFiles")
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}))
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			require.ErrorIs(t, err, syscall.EMFILE)
			break
		}
		files = append(files, f)
	}
	_, err = l.Accept()
	require.ErrorIs(t, err, syscall.EMFILE, "that is how it is")
	over := make(chan struct{})
	close(over)
	_, err = soon(t, l, over)
	require.ErrorIs(t, err, syscall.EMFILE, "nobody waits any more")

	time.AfterFunc(50*time.Millisecond, func() { _ = files[0].Close() })
	conn, err := soon(t, l, nil)
	require.NoError(t, err)
	require.Equal(t, client.LocalAddr().String(), conn.RemoteAddr().String())
	require.NoError(t, l.Close())
	_, err = soon(t, l, nil)
	require.ErrorIs(t, err, net.ErrClosed)
}

// soon is Next, which is to end.
func soon(t *testing.T, l net.Listener, over <-chan struct{}) (conn net.Conn, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err = New(l, nil).Next(over)
	}()
	select {
	case <-ended:
		return conn, err
	case <-time.After(time.Minute):
		require.Fail(t, "it waits")
		return nil, nil
	}
}
