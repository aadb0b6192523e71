//go:build linux

package guest

import (
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// newServer returns a server with files as its ports.
func newServer(t *testing.T) (s *server, stdout, stderr *os.File) {
	t.Helper()
	s = &server{ports: make(map[string]*os.File), root: &root{}}
	for _, p := range []string{proto.PortStdin, proto.PortStdout, proto.PortStderr} {
		f, err := os.CreateTemp(t.TempDir(), "")
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		s.ports[p] = f
	}
	return s, s.ports[proto.PortStdout], s.ports[proto.PortStderr]
}

// A signal that is there before the program is the program's all the same.
func TestSignalBeforeTheProgram(t *testing.T) {
	s, _, _ := newServer(t)
	s.signal(syscall.SIGTERM)
	start := time.Now()
	reply := s.execMain(proto.Message{Argv: proto.Bytes([]string{"/bin/sleep", "20"})})
	require.Equal(t, 128+int(syscall.SIGTERM), reply.Code, "%+v", reply)
	require.Less(t, time.Since(start), 10*time.Second)
}

// The reply counts what went to each port: all that the program wrote, however
// much, and nothing that comes later from what it left behind.
func TestOutputIsCounted(t *testing.T) {
	s, stdout, stderr := newServer(t)
	const script = `(sleep 5; echo late) & seq 1 100000; printf 'to stderr' >&2; exit 3`
	reply := s.execMain(proto.Message{Argv: proto.Bytes([]string{"/bin/sh", "-c", script}), Env: proto.Bytes(os.Environ())})
	require.Equal(t, 3, reply.Code, "%+v", reply)
	require.EqualValues(t, 588_895, reply.OutBytes)
	require.EqualValues(t, len("to stderr"), reply.ErrBytes)
	out, err := os.ReadFile(stdout.Name())
	require.NoError(t, err)
	require.Len(t, out, 588_895)
	require.True(t, bytes.HasSuffix(out, []byte("\n100000\n")))
	errs, err := os.ReadFile(stderr.Name())
	require.NoError(t, err)
	require.Equal(t, "to stderr", string(errs))
}

// What is in the pipe when the program exits comes through, even if the port is
// slow and another process keeps the pipe open.
func TestDrainEmptiesThePipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	_, err = w.WriteString(strings.Repeat("x", 60_000))
	require.NoError(t, err)
	exited := make(chan struct{})
	close(exited)
	require.NoError(t, r.SetReadDeadline(time.Unix(1, 0))) // the exit is seen before the output
	slow, port := io.Pipe()
	got := make(chan int64)
	go func() { got <- drain(port, r, exited) }()
	read := make(chan int64)
	go func() {
		n, _ := io.CopyBuffer(io.Discard, struct{ io.Reader }{slow}, make([]byte, 1000))
		read <- n
	}()
	require.EqualValues(t, 60_000, <-got)
	require.NoError(t, port.Close())
	require.EqualValues(t, 60_000, <-read)
}

func TestExitStatus(t *testing.T) {
	s, _, _ := newServer(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 9": 9, "kill -KILL $$": 137} {
		require.Equal(t, want, s.exec(proto.Message{Argv: proto.Bytes([]string{"/bin/sh", "-c", script})}).Code, script)
	}
	require.Equal(t, notFound, s.exec(proto.Message{Argv: proto.Bytes([]string{"/no/such"})}).Code)
	require.Equal(t, notFound, s.exec(proto.Message{Argv: proto.Bytes([]string{"no-such"}), Env: proto.Bytes(os.Environ())}).Code)
	require.Equal(t, cannotRun, s.exec(proto.Message{Argv: proto.Bytes([]string{"/etc/passwd"})}).Code)
	require.Equal(t, cannotRun, s.exec(proto.Message{}).Code)
}
