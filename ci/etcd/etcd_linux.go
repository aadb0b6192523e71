package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// Path returns the program: $ETCD, or that of the host's release of Debian, or else of Debian 13.
func Path(ctx context.Context) (string, error) {
	if p := os.Getenv("ETCD"); p != "" {
		return p, nil
	}
	_, release := debian.Host()
	if release == "" {
		release = "trixie"
	}
	folder, err := cache.Dir()
	if err != nil {
		return "", err
	}
	tree, err := debian.Unpack(ctx, folder, release, runtime.GOARCH, "etcd-server")
	if err != nil {
		return "", fmt.Errorf("etcd: %w", err)
	}
	return filepath.Join(tree, "usr", "bin", "etcd"), nil
}

// Server is an etcd of one member.
type Server struct {
	URL string
	cmd *exec.Cmd
}

// Start starts an etcd that ends with the test, and waits until it replies.
func Start(t testing.TB) *Server {
	t.Helper()
	path, err := Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: free(t)}
	peer := free(t)
	s.cmd = exec.Command(path, "--name", "a", "--data-dir", t.TempDir(), "--listen-client-urls", s.URL, "--advertise-client-urls", s.URL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "a="+peer)
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

// free returns a URL with a port that is free.
func free(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}
