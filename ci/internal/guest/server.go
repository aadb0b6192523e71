//go:build linux

package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/ci/internal/proto"
)

// server runs programs for the launcher, and passes on what programs in this
// guest ask of the launcher.
type server struct {
	job     proto.Job
	ports   map[string]*os.File
	control *proto.Conn

	mu      sync.Mutex
	lastID  uint64
	waiting map[uint64]chan proto.Message // for replies of the launcher
}

func (s *server) serve() error {
	l, err := net.Listen("unix", proto.Socket)
	if err != nil {
		return err
	}
	go s.serveLocal(l)
	for {
		m, err := s.control.Receive()
		if err != nil {
			return fmt.Errorf("control port: %w", err)
		}
		switch m.Op {
		case proto.OpExec:
			go func() {
				reply := s.exec(m)
				reply.ID, reply.Op, reply.From, reply.Main = m.ID, proto.OpDone, m.From, m.Main
				s.control.Send(reply)
			}()
		case proto.OpDone:
			s.mu.Lock()
			ch := s.waiting[m.ID]
			delete(s.waiting, m.ID)
			s.mu.Unlock()
			if ch != nil {
				ch <- m
			}
		}
	}
}

// serveLocal takes requests from programs of this guest: one message, one
// reply.
func (s *server) serveLocal(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			c := proto.NewConn(conn)
			m, err := c.Receive()
			if err != nil {
				return
			}
			ch := make(chan proto.Message, 1)
			s.mu.Lock()
			s.lastID++
			m.ID = s.lastID
			s.waiting[m.ID] = ch
			s.mu.Unlock()
			if err := s.control.Send(m); err != nil {
				return
			}
			c.Send(<-ch)
		}()
	}
}

// exec runs a program to its end.
func (s *server) exec(m proto.Message) proto.Message {
	if len(m.Argv) == 0 {
		return proto.Message{Error: "no command", Code: 127}
	}
	cmd := exec.Command(m.Argv[0], m.Argv[1:]...)
	cmd.Env, cmd.Dir = m.Env, m.Dir
	if path := lookPath(m.Argv[0], m.Env); path != "" {
		cmd.Path, cmd.Err = path, nil
	}
	var stdout, stderr bytes.Buffer
	done := func() {}
	switch {
	case m.TTY:
		tty, end, err := openTTY(s.ports[proto.PortStdin], s.ports[proto.PortStdout])
		if err != nil {
			return proto.Message{Error: err.Error(), Code: 126}
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		done = end
	case m.Main:
		// Handed down as they are: a program that fork-and-forgets keeps them
		// open without keeping us waiting.
		cmd.Stdout, cmd.Stderr = s.ports[proto.PortStdout], s.ports[proto.PortStderr]
	default:
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.WaitDelay = time.Second
	}
	err := cmd.Run()
	done()
	if m.Main {
		unix.Sync() // what lies in shared folders is the host's now
	}
	reply := proto.Message{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		reply.Code = exit.ExitCode()
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
			reply.Code = 128 + int(st.Signal())
		}
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		reply.Error, reply.Code = err.Error(), 127
	}
	return reply
}

// lookPath finds a program in the PATH that it will have, not in ours.
func lookPath(name string, env []string) string {
	for _, e := range env {
		if len(e) > 5 && e[:5] == "PATH=" {
			os.Setenv("PATH", e[5:])
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	return path
}

// openTTY makes a terminal that is joined to the ports.
func openTTY(in, out *os.File) (tty *os.File, done func(), err error) {
	master, err := os.OpenFile("/dev/pts/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	go io.Copy(master, in)
	copied := make(chan struct{})
	go func() {
		io.Copy(out, master) // ends with EIO when the last program has closed its end
		close(copied)
	}()
	return tty, func() { tty.Close(); <-copied }, nil
}
