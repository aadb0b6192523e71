package etcd

import (
	"errors"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is an etcd of one member.
type Server struct {
	URL string
	cmd *exec.Cmd
}

// Start starts an etcd that ends with the test, and waits until it replies.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, "http")
}

// StartTLS starts an etcd that speaks https, with more arguments, such as --cert-file.
func StartTLS(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, "https", args...)
}

func start(t testing.TB, scheme string, args ...string) *Server {
	t.Helper()
	path, err := Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: scheme + "://" + free(t)}
	peer := "http://" + free(t)
	s.cmd = exec.Command(path, "--name", "a", "--data-dir", t.TempDir(), "--listen-client-urls", s.URL, "--advertise-client-urls", s.URL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "a="+peer)
	s.cmd.Args = append(s.cmd.Args, args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = t.Output() // of tests that fail
	s.cmd.Stdout = s.cmd.Stderr
	// The thread that starts a child must outlive it for Pdeathsig.
	started, stopped := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		started <- s.cmd.Start()
		<-stopped
	}()
	if err := <-started; err != nil {
		t.Fatalf("etcd: %v", err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		close(stopped)
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := s.healthy()
		if err == nil {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("etcd: %v", err)
		}
	}
}

// Stop has the process hang, as SIGSTOP does, until [Server.Continue].
func (s *Server) Stop(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Server) Continue(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// healthy returns why the server does not serve.
func (s *Server) healthy() error {
	if address, secure := strings.CutPrefix(s.URL, "https://"); secure {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(s.URL + "/health")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// free returns an address with a port that is free.
func free(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
