package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func TestPasswords(t *testing.T) {
	_, addr := newServer(t, Config{Users: map[string]string{"ann": "secret"}})
	p := dial(t, "tcp", addr)
	answer := func(command string) string {
		_, err := p.nc.Write([]byte(command))
		require.NoError(t, err)
		b := make([]byte, 100)
		n, err := p.nc.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	require.Equal(t, "CLIENT_ERROR unauthenticated\r\n", answer("get a\r\n"))
	for text, want := range map[string]string{
		"ann wrong": "CLIENT_ERROR authentication failure", "bob secret": "CLIENT_ERROR authentication failure",
		"bob ": "CLIENT_ERROR bad authentication token format",
	} {
		got := answer("set x 0 0 " + u64(uint64(len(text))) + "\r\n" + text + "\r\n")
		require.Equal(t, want+"\r\n", got)
	}
	require.Equal(t, "STORED\r\nEND\r\n", p.ask("set x 0 0 10\r\nann secret\r\nget x\r\n"))
}

// certificate is one of a server's, and what a client needs to know it.
func certificate(t testing.TB, name string) (server *tls.Config, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool, ServerName: name}
}

func TestTLS(t *testing.T) {
	ours, theirs := certificate(t, "cache")
	_, addr := newServer(t, Config{TLS: ours})
	nc, err := tls.Dial("tcp", addr, theirs)
	require.NoError(t, err)
	defer nc.Close()
	require.Equal(t, "STORED\r\n", (&peer{t, nc}).ask("set a 0 0 1\r\nx\r\n"))
	require.Equal(t, uint16(tls.VersionTLS13), nc.ConnectionState().Version)
	old := theirs.Clone()
	old.MaxVersion = tls.VersionTLS12
	_, err = tls.Dial("tcp", addr, old)
	require.Error(t, err, "TLS 1.3 is the least")
	require.NotContains(t, dial(t, "tcp", addr).rest("get a\r\n"), "END", "nothing is said in the clear")
}

// Another certificate and other passwords are for later connections; none is closed.
func TestAdmit(t *testing.T) {
	first, knowsFirst := certificate(t, "first")
	s, addr := newServer(t, Config{TLS: first, Users: map[string]string{"ann": "old"}})
	secret := func(cfg *tls.Config) *peer {
		nc, err := tls.Dial("tcp", addr, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		return &peer{t, nc}
	}
	before := secret(knowsFirst)
	require.Equal(t, "STORED\r\n", before.ask("set x 0 0 7\r\nann old\r\n"))

	second, knowsSecond := certificate(t, "second")
	s.Admit(second, map[string]string{"ann": "new"})
	_, err := tls.Dial("tcp", addr, knowsFirst)
	require.Error(t, err)
	after := secret(knowsSecond)
	require.Equal(t, "CLIENT_ERROR authentication failure\r\nSTORED\r\nEND\r\n", after.ask("set x 0 0 7\r\nann old\r\nset x 0 0 7\r\nann new\r\nget a\r\n"))
	require.Equal(t, "END\r\n", before.ask("get a\r\n"))
	st := s.Stats()
	require.Equal(t, uint64(1), st.AuthErrors)
	require.Equal(t, uint64(2), st.Gets)
	require.True(t, st.TLS && st.Passwords)
	s.Admit(nil, nil)
	require.Equal(t, "END\r\n", dial(t, "tcp", addr).ask("get a\r\n"))
	st = s.Stats()
	require.False(t, st.TLS || st.Passwords)
}

// newClient makes up a command of a client that is not known yet, which has one line for an
// answer, or ends the connection.
func newClient(w writer) string {
	token := w.of("ann secret", "ann wrong", "bob secret", "ann secret more", " ann  secret", "ann", "", " ", "ann secre", "ann secrett", "an secret", "ann:secret", "carl a:b", "carl a")
	set := func(n, data string) string {
		return fmt.Sprintf("set %s %s %s %s%s\r\n%s", w.of("x", "y"), w.of("0", "5", "z"), w.of("0", "-1", "z"), n, w.of("", "", " noreply", " a b"), data)
	}
	switch w.IntN(8) {
	case 0:
		return w.of("get a", "version", "mn", "quit", "stats", "set", "set a 0 0", "ms a 1", "gets x y z", "flush_all", "add x 0 0 5") + w.of("\r\n", "\n")
	case 1:
		return set(w.of("x", "-1", "1x"), "")
	case 2:
		return set(fmt.Sprint(len(token)), token+w.of("xx", "\n\r", "\rx"))
	}
	return set(fmt.Sprint(len(token)), token+"\r\n")
}

// A client without a password gets the replies that memcached -Y sends, up to the end of
// the connection.
func TestNewClientsAgainstMemcached(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("ann:secret\ncarl:a:b\n"), 0o644))
	theirs := memcached(t, "-Y", file).nc.RemoteAddr()
	_, addr := newServer(t, Config{Users: map[string]string{"ann": "secret", "carl": "a:b"}})
	w := writer{mrand.New(mrand.NewPCG(testseed.New(t), 0))}
	rounds := 200
	if !testing.Short() {
		rounds = 5000
	}
	for range rounds {
		theirs, ours := dial(t, theirs.Network(), theirs.String()), dial(t, "tcp", addr)
		var said []string
		for range 10 {
			said = append(said, newClient(w))
			want, got := theirs.line(said[len(said)-1]), ours.line(said[len(said)-1])
			require.Equal(t, want, got, "%q", said)
			if want == "STORED\r\n" {
				require.Equal(t, theirs.ask("get x\r\n"), ours.ask("get x\r\n"))
			}
			if want == "STORED\r\n" || want == "" {
				break
			}
		}
		_, _ = theirs.nc.Close(), ours.nc.Close()
	}
}

// line sends something and reads a line, or nothing if the peer closes.
func (p *peer) line(text string) string {
	p.t.Helper()
	_, err := p.nc.Write([]byte(text))
	require.NoError(p.t, err)
	require.NoError(p.t, p.nc.SetReadDeadline(time.Now().Add(stuck)))
	var got []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(got), "\n"); {
		n, err := p.nc.Read(b)
		require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded, "%q", text)
		if got = append(got, b[:n]...); err != nil {
			break
		}
	}
	return string(got)
}

// bare is a listener of a process that at first has no file for a connection.
type bare struct {
	net.Listener
	left atomic.Int32
}

func (l *bare) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// A process without free file descriptors goes on serving.
func TestServeWithoutFiles(t *testing.T) {
	s, err := New(Config{Store: newLocal(t)})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	scarce := &bare{Listener: l}
	scarce.left.Store(3)
	done := make(chan error, 1)
	go func() { done <- s.Serve(scarce) }()
	require.Equal(t, "END\r\n", dial(t, "tcp", l.Addr().String()).ask("get a\r\n"))
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrClosed)
}
