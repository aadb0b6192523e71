//go:build linux

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// Exit statuses of a program that did not start, as env(1) has them.
const (
	cannotRun = 126
	notFound  = 127
)

// command returns what a message asks for.
func command(m proto.Message) (*exec.Cmd, error) {
	argv, env := proto.Strings(m.Argv), proto.Strings(m.Env)
	if len(argv) == 0 {
		return nil, errors.New("no command")
	}
	path, err := find(argv[0], string(m.Dir), env)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{Path: path, Args: argv, Env: env, Dir: string(m.Dir)}, nil
}

// find looks a program up in the PATH that it will have, not in ours.
func find(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, e := range slices.Backward(env) { // the last value of a variable counts
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(list) {
			if !filepath.IsAbs(d) {
				d = filepath.Join(dir, d)
			}
			path := filepath.Join(d, name)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return path, nil
			}
		}
		break
	}
	return "", exec.ErrNotFound
}

// exec runs a program to its end; its output is in the reply.
func (s *server) exec(m proto.Message) proto.Message {
	cmd, err := command(m)
	if err != nil {
		return ended(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	reply := ended(cmd.Run())
	reply.Stdout, reply.Stderr = stdout.Bytes(), stderr.Bytes()
	return reply
}

// execMain runs the program that the launcher was started for: its input and
// output go by the ports, and the reply counts them.
func (s *server) execMain(m proto.Message) proto.Message {
	cmd, err := command(m)
	if err != nil {
		return ended(err)
	}
	var finish func(*proto.Message)
	if m.TTY {
		finish, err = s.terminal(cmd)
	} else {
		finish, err = s.pipes(cmd)
	}
	if err != nil {
		return ended(err)
	}
	s.setMain(cmd.Process)
	reply := ended(cmd.Wait())
	s.setMain(nil)
	finish(&reply)
	// A complaint of the kernel that the program's end provoked has this long to
	// reach the console.
	time.Sleep(100 * time.Millisecond)
	unix.Sync() // what lies in shared folders is the host's now
	if err := s.root.keep(m.Keep); err != nil && reply.Error == "" {
		reply.Error = err.Error()
	}
	return reply
}

// ended returns a reply with the exit status behind err.
func ended(err error) proto.Message {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return proto.Message{}
	case errors.As(err, &exit):
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
			return proto.Message{Code: 128 + int(st.Signal())}
		}
		return proto.Message{Code: exit.ExitCode()}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return proto.Message{Code: notFound, Error: err.Error()}
	}
	return proto.Message{Code: cannotRun, Error: err.Error()}
}

// pipes starts a program on pipes that are joined to the ports.
func (s *server) pipes(cmd *exec.Cmd) (finish func(*proto.Message), err error) {
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	// A group of its own, for signals as a terminal gives them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		proto.ReceiveInput(ours[0], s.ports[proto.PortStdin])
		ours[0].Close()
	}()
	exited := make(chan struct{})
	counts := [2]chan int64{make(chan int64, 1), make(chan int64, 1)}
	for i, port := range []string{proto.PortStdout, proto.PortStderr} {
		go func() { counts[i] <- drain(s.ports[port], ours[1+i], exited) }()
	}
	return func(reply *proto.Message) {
		close(exited)
		reply.OutBytes, reply.ErrBytes = <-counts[0], <-counts[1]
	}, nil
}

// drain copies what comes out of a pipe until all its writers have closed it,
// or until the program has exited and everything that it wrote is copied: what
// it started and left behind may keep the pipe open for ever.
func drain(w io.Writer, pipe *os.File, exited <-chan struct{}) (total int64) {
	defer pipe.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-exited:
			pipe.SetReadDeadline(time.Unix(1, 0))
		case <-done:
		}
	}()
	buf := make([]byte, 1<<16)
	put := func(n int) {
		total += int64(n)
		w.Write(buf[:n]) // the launcher has gone if this fails
	}
	for {
		n, err := pipe.Read(buf)
		put(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return total
		}
	}
	// What is in the pipe now is at most what it holds. No deadline counts any more.
	raw, err := pipe.SyscallConn()
	if err != nil {
		return total
	}
	for left := pipeSize(raw); left > 0; {
		n := 0
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf[:min(left, len(buf))]) })
		if err != nil || n <= 0 {
			break
		}
		put(n)
		left -= n
	}
	return total
}

func pipeSize(raw syscall.RawConn) (size int) {
	raw.Control(func(fd uintptr) { size, _ = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) })
	return size
}

// terminal starts a program on a terminal that is joined to the ports.
func (s *server) terminal(cmd *exec.Cmd) (finish func(*proto.Message), err error) {
	master, err := os.OpenFile("/dev/pts/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	tty.Close()
	if err != nil {
		return nil, err
	}
	go proto.ReceiveInput(master, s.ports[proto.PortStdin])
	copied := make(chan int64, 1)
	go func() {
		// It ends with EIO when the last program has closed its end.
		n, _ := io.Copy(s.ports[proto.PortStdout], master)
		copied <- n
	}()
	return func(reply *proto.Message) { reply.OutBytes = <-copied }, nil
}
