package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is a member of an etcd, in a process of its own.
type Server struct {
	URL string
	cmd *exec.Cmd
}

// Start starts an etcd of one member that ends with the test, and waits until it replies.
func Start(t testing.TB) *Server {
	t.Helper()
	return start(t, "http", 1)[0]
}

// StartTLS starts an etcd of one member that speaks https, with more arguments, such as --cert-file.
func StartTLS(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, "https", 1, args...)[0]
}

// StartThree starts an etcd of three members.
func StartThree(t testing.TB) []*Server {
	t.Helper()
	return start(t, "http", 3)
}

func start(t testing.TB, scheme string, members int, args ...string) (all []*Server) {
	t.Helper()
	path, err := Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var peers, cluster []string
	for i := range members {
		peers = append(peers, "http://"+free(t))
		cluster = append(cluster, fmt.Sprintf("%c=%s", 'a'+i, peers[i]))
	}
	for i, peer := range peers {
		url := scheme + "://" + free(t)
		s := &Server{URL: url, cmd: exec.Command(path, append([]string{"--name", string(rune('a' + i)), "--data-dir", t.TempDir(),
			"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(cluster, ",")}, args...)...)}
		s.run(t)
		all = append(all, s)
	}
	for _, s := range all {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := s.healthy()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("etcd: %v", err)
			}
		}
	}
	return all
}

// run starts the process, which ends with the test.
func (s *Server) run(t testing.TB) {
	t.Helper()
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
}

// Kill ends the process at once.
func (s *Server) Kill(t testing.TB) { s.signal(t, syscall.SIGKILL) }

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

// Leads reports whether the server is the leader of its etcd.
func (s *Server) Leads() bool {
	b, err := s.get("/metrics")
	return err == nil && bytes.Contains(b, []byte("\netcd_server_is_leader 1\n"))
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
	_, err := s.get("/health")
	return err
}

// get returns what the server replies at a path.
func (s *Server) get(path string) ([]byte, error) {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(s.URL + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, errors.New(r.Status)
	}
	return io.ReadAll(r.Body)
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
