package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/testproc"
)

// Server is a member of an etcd, in a process of its own.
type Server struct {
	URL   string
	data  string // a folder
	cmd   *exec.Cmd
	ended <-chan error
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

func start(t testing.TB, scheme string, members int, args ...string) []*Server {
	t.Helper()
	all, err := run(t.Context(), t.TempDir(), t.Output(), scheme, members, args...) // the output is of tests that fail
	for _, s := range all {
		t.Cleanup(s.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Run starts an etcd of some members with their data in a folder, and waits until all reply. They end with Close, or with
// this program.
func Run(ctx context.Context, folder string, out io.Writer, members int) ([]*Server, error) {
	all, err := run(ctx, folder, out, "http", members)
	if err != nil {
		for _, s := range all {
			s.Close()
		}
		return nil, err
	}
	return all, nil
}

// run starts the members of an etcd, and waits until all reply. With an error it returns those that it has started.
func run(ctx context.Context, folder string, out io.Writer, scheme string, members int, args ...string) (all []*Server, err error) {
	path, err := Path(ctx)
	if err != nil {
		return nil, err
	}
	addresses, err := free(2 * members) // for clients, and for other members
	if err != nil {
		return nil, err
	}
	var clients, peers []string
	for i := range members {
		clients, peers = append(clients, scheme+"://"+addresses[i]), append(peers, "http://"+addresses[members+i])
	}
	for i := range members {
		s := &Server{URL: clients[i], data: data(folder, i)}
		s.cmd = exec.Command(path, append(Args(i, folder, clients, peers), args...)...)
		s.cmd.Stdout, s.cmd.Stderr = out, out
		if s.ended, err = testproc.Start(s.cmd); err != nil {
			return all, fmt.Errorf("etcd: %w", err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		if err := s.wait(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Args returns the arguments of the i-th member of an etcd with its data in a folder. All members have URLs for clients
// and for each other.
func Args(i int, folder string, clients, peers []string) []string {
	var cluster []string
	for j, peer := range peers {
		cluster = append(cluster, name(j)+"="+peer)
	}
	return []string{"--name", name(i), "--data-dir", data(folder, i),
		"--listen-client-urls", clients[i], "--advertise-client-urls", clients[i], "--listen-peer-urls", peers[i],
		"--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(cluster, ",")}
}

func name(i int) string                { return string(rune('a' + i)) }
func data(folder string, i int) string { return filepath.Join(folder, name(i)) }

// wait waits until the server replies.
func (s *Server) wait() error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := s.healthy()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("etcd: %w", err)
		}
	}
}

// Close kills the process, and waits for its end.
func (s *Server) Close() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Backup copies the data of the server, and returns a function that ends the server and starts it with the copy.
func (s *Server) Backup(t testing.TB) (restore func()) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "backup")
	s.Stop(t)
	if err := os.CopyFS(folder, os.DirFS(s.data)); err != nil {
		t.Fatal(err)
	}
	s.Continue(t)
	return func() {
		t.Helper()
		s.Close()
		err := errors.Join(os.RemoveAll(s.data), os.CopyFS(s.data, os.DirFS(folder)))
		if err == nil {
			err = s.Restart()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Restart ends the process, and starts it with its data.
func (s *Server) Restart() (err error) {
	s.Close()
	old := s.cmd
	s.cmd = exec.Command(old.Path, old.Args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = old.Stdout, old.Stderr
	if s.ended, err = testproc.Start(s.cmd); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return s.wait()
}

// Kill ends the process at once.
func (s *Server) Kill(t testing.TB) { s.signal(t, syscall.SIGKILL) }

// Stop has the process hang, as SIGSTOP does, until [Server.Continue].
func (s *Server) Stop(t testing.TB) { s.signal(t, syscall.SIGSTOP) }

// Continue ends Stop.
func (s *Server) Continue(t testing.TB) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Signal sends the process a signal.
func (s *Server) Signal(signal syscall.Signal) error { return s.cmd.Process.Signal(signal) }

// Leads reports whether the server is the leader of its etcd.
func (s *Server) Leads() bool {
	b, err := get(s.URL + "/metrics")
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
	return Healthy(s.URL)
}

// Healthy returns why the etcd at a URL does not serve.
func Healthy(url string) error {
	_, err := get(url + "/health")
	return err
}

// get returns what a server replies.
func get(url string) ([]byte, error) {
	client := http.Client{Timeout: time.Second}
	r, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, errors.New(r.Status)
	}
	return io.ReadAll(r.Body)
}

// free returns addresses with ports that are free.
func free(n int) (all []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all, nil
}
