package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/internal/testproc"
	"github.com/goverbs/goverbs/verbs"
)

// Calm keeps the Go runtime's monitor thread out of its deep sleep, as rdmabench
// does for itself: on one CPU each call into C would wake it.
const Calm = "GODEBUG=schedtrace=1000000000"

// Processes runs a server, and beside it a client as soon as the server can be
// reached, and returns what the client printed. Both end with the context.
func Processes(ctx context.Context, server, client []string, env ...string) ([]byte, error) {
	env = append(os.Environ(), env...)
	command := func(line []string, stdout, stderr *bytes.Buffer) *exec.Cmd {
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, stdout, stderr, time.Second
		return cmd
	}
	var said bytes.Buffer
	srv := command(server, &said, &said)
	ended, err := testproc.Start(srv)
	if err != nil {
		return nil, err
	}
	stop := func() {
		srv.Process.Kill()
		<-ended
	}
	// perftest's client does not wait for its server.
	for try := 1; ; try++ {
		time.Sleep(100 * time.Millisecond)
		var out, errOut bytes.Buffer
		ended, err := testproc.Start(command(client, &out, &errOut))
		if err == nil {
			err = <-ended
		}
		if err == nil {
			stop()
			return out.Bytes(), nil
		}
		if refused := bytes.Contains(append(errOut.Bytes(), out.Bytes()...), []byte("Couldn't connect")); !refused || try == 30 || ctx.Err() != nil {
			stop() // it writes to said no more
			return nil, fmt.Errorf("%s: %w: %s %s; server: %s", strings.Join(client, " "), err, Tail(errOut.Bytes()), Tail(out.Bytes()), Tail(said.Bytes()))
		}
	}
}

// Tail returns the end of what a program printed.
func Tail(b []byte) string {
	s := strings.TrimSpace(string(b))
	if len(s) > 300 {
		s = "..." + s[len(s)-300:]
	}
	return s
}

// Warm reads programs, so that their pages are in memory when they start. The
// instruction clock runs ahead while a guest with nothing else to do waits for a
// file of its host: a program that was read page by page took 36 s of that clock,
// and its peer had given up by then.
func Warm(programs ...string) error {
	for _, p := range programs {
		path, err := exec.LookPath(p)
		if err != nil {
			return err
		}
		if _, err := os.ReadFile(path); err != nil {
			return err
		}
	}
	return nil
}

// Role is what this program does as one side of a pass, when it is started with
// -role; at is the address of the pass, or whatever the pass tells it.
type Role func(ctx context.Context, at string) error

// WarmSelf is Warm for what this program has mapped: itself, and its libraries, with those
// that libibverbs loads when it is first asked for devices.
var WarmSelf = sync.OnceValue(func() error {
	if _, err := verbs.Devices(); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	files := make(map[string]bool)
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.Contains(line[:at], "r-xp") { // and no data
			files[strings.TrimSpace(line[at:])] = true
		}
	}
	for name := range files {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			continue // deleted, or a device
		}
		if _, err := os.ReadFile(name); err != nil {
			return err
		}
	}
	return nil
})

// ByRoles is what the client prints, which reaches the server at the second
// endpoint. Both are this program, in a role.
func ByRoles(server, client string, env ...string) harness.Pass {
	return harness.One(func(ctx context.Context) (float64, error) {
		_, s, err := Endpoints()
		if err != nil {
			return 0, err
		}
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		if err := WarmSelf(); err != nil {
			return 0, err
		}
		to := net.JoinHostPort(s.Addr.String(), NextPort())
		out, err := Processes(ctx, []string{self, "-role", server, "-at", to}, []string{self, "-role", client, "-at", to}, env...)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	})
}

// DialServer reaches a role's server, from the first endpoint's address: in the
// lab, TCP would go by the loopback device otherwise.
func DialServer(at string) (net.Conn, error) {
	c, _, err := Endpoints()
	if err != nil {
		return nil, err
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.Addr.AsSlice()}}
	conn, err := d.Dial("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("server: Couldn't connect: %w", err) // Processes tries again
	}
	return conn, nil
}
