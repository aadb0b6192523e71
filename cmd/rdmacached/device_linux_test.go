package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// One record by memcached's protocol over TCP and by RDMA READ, counted, until the daemon
// ends in peace.
func TestDaemon(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	c, err := parseConfig([]byte(`{"listen": "` + netip.AddrPortFrom(ends[1].Addr, 0).String() + `", "memory": "8MiB", "lease": "1s",
		"gateway": {"listen": "127.0.0.1:0"}, "metrics": "127.0.0.1:0"}`))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	systemd := notified(t)
	started, ended, hup := make(chan *service, 1), make(chan error, 1), make(chan os.Signal)
	go func() {
		ended <- run(serving, &c, slog.New(slog.DiscardHandler), hup, func(d *service) { started <- d })
	}()
	var d *service
	select {
	case d = <-started:
	case err := <-ended:
		t.Fatal(err)
	}

	require.Equal(t, "READY=1", systemd())
	hup <- syscall.SIGHUP
	tcp, err := net.Dial("tcp", d.listener.Addr().String())
	require.NoError(t, err)
	defer tcp.Close()
	require.NoError(t, tcp.SetDeadline(time.Now().Add(time.Minute)))
	in := bufio.NewReader(tcp)
	say := func(text string) string {
		_, err := io.WriteString(tcp, text+"\r\n")
		require.NoError(t, err)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}
	require.Equal(t, "STORED", say("set colour 5 0 4\r\nblue"))

	client, err := cache.Dial(ctx, d.cache.Addr().String(), cache.Config{Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}})
	require.NoError(t, err)
	defer client.Close()
	require.Eventually(t, func() bool { return client.Stats().Whole }, time.Minute, time.Millisecond)
	it, err := client.Get(ctx, []byte("colour"))
	require.NoError(t, err)
	require.Equal(t, "blue", string(it.Value))
	require.Equal(t, uint32(5), it.Flags)
	require.Equal(t, uint64(1), client.Stats().Hits)
	require.NoError(t, client.Set(ctx, []byte("colour"), cache.Item{Value: []byte("red")}, 0))
	require.Equal(t, "VA 3", say("mg colour v"))
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "red\r\n", line)

	get := func(path string) string {
		r, err := http.Get("http://" + d.metrics.Addr().String() + path)
		require.NoError(t, err)
		defer r.Body.Close()
		require.Equal(t, http.StatusOK, r.StatusCode)
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "ok\n", get("/healthz"))
	text := get("/metrics")
	require.Contains(t, text, "\nrdmacached_items 1\n")
	require.Contains(t, text, "\nrdmacached_rdma_clients 1\n")
	require.Contains(t, text, "\nrdmacached_calls_store_total 2\n")

	var status cachestatus.Status
	require.NoError(t, json.Unmarshal([]byte(get(cachestatus.Path)), &status))
	require.Equal(t, d.cache.Addr().String(), status.Listens)
	require.Equal(t, "serving", status.State)
	require.Equal(t, 1, status.Server.Clients)
	require.Equal(t, uint64(1), status.Commands.Connections)
	require.Equal(t, d.listener.Addr().String(), status.Gateway)

	stop()
	require.NoError(t, <-ended)
	require.Equal(t, "STOPPING=1", systemd())
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the connection was closed, and not broken")
	require.Eventually(t, func() bool { return !client.Stats().Connected }, time.Minute, time.Millisecond)
}

// begin runs a daemon until its end is asked for.
func begin(t *testing.T, text string) (d *service, end func()) {
	c, err := parseConfig([]byte(text))
	require.NoError(t, err)
	serving, stop := context.WithCancel(context.Background())
	started, ended := make(chan *service, 1), make(chan error, 1)
	go func() {
		ended <- run(serving, &c, slog.New(slog.NewTextHandler(t.Output(), nil)), nil, func(d *service) { started <- d })
	}()
	select {
	case d = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-ended)
	})
	t.Cleanup(end)
	return d, end
}

// Records outlive the daemon, for clients of both protocols, under another epoch; but not a
// second time.
func TestWarmRestart(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	file := filepath.Join(t.TempDir(), "snapshot")
	address := netip.AddrPortFrom(ends[1].Addr, 0).String()
	text := func(more string) string {
		return `{"listen": "` + address + `", "memory": "8MiB", "lease": "1s", "snapshot": "` + file + `"` + more + `}`
	}
	const withGateway = `, "gateway": {"listen": "127.0.0.1:0"}`
	ask := func(d *service, command string) string {
		tcp, err := net.Dial("tcp", d.listener.Addr().String())
		require.NoError(t, err)
		defer tcp.Close()
		require.NoError(t, tcp.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(tcp, command+"\r\nquit\r\n")
		require.NoError(t, err)
		b, err := io.ReadAll(tcp)
		require.NoError(t, err)
		return string(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, end := begin(t, text(withGateway))
	address = d.cache.Addr().String()
	epoch := d.cache.Epoch()
	client, err := cache.Dial(ctx, address, cache.Config{Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}})
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Set(ctx, []byte("colour"), cache.Item{Value: []byte("blue"), Flags: 5}, time.Hour))
	require.NoError(t, client.Set(ctx, []byte("brief"), cache.Item{}, time.Millisecond))
	before := ask(d, "gets colour")
	end()
	_, err = os.Stat(file)
	require.NoError(t, err)

	// A start that fails has not taken anything for good.
	c, err := parseConfig([]byte(text(`, "metrics": "192.0.2.1:9481"`)))
	require.NoError(t, err)
	require.Error(t, run(ctx, &c, slog.New(slog.DiscardHandler), nil, nil))

	d, _ = begin(t, text(withGateway))
	require.NotEqual(t, epoch, d.cache.Epoch())
	_, err = os.Stat(file)
	require.ErrorIs(t, err, os.ErrNotExist, "it is taken")
	require.Equal(t, before, ask(d, "gets colour"), "the CAS number too")
	it, err := client.Get(ctx, []byte("colour"))
	require.NoError(t, err)
	require.Equal(t, "blue", string(it.Value))
	require.Equal(t, uint64(2), client.Stats().Sessions)
	require.Eventually(t, func() bool { return client.Stats().Whole }, time.Minute, time.Millisecond)
	hits := client.Stats().Hits
	it, err = client.Get(ctx, []byte("colour"))
	require.NoError(t, err)
	require.Equal(t, uint32(5), it.Flags)
	require.Equal(t, hits+1, client.Stats().Hits, "by READ")
	_, err = client.Get(ctx, []byte("brief"))
	require.ErrorIs(t, err, cache.ErrNotFound)
}

// SIGHUP has the key of a daemon without tenants read again. A file without a key changes nothing.
func TestDaemonWithAnotherKey(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	file := filepath.Join(t.TempDir(), "key")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	const first, second = "the first key of all", "the second key of all"
	write(first)
	d, _ := begin(t, `{"listen": "`+netip.AddrPortFrom(ends[1].Addr, 0).String()+`", "memory": "8MiB", "key": "`+file+`"}`)
	admits := func(key string) bool {
		client, err := cache.Dial(ctx, d.cache.Addr().String(), cache.Config{Key: []byte(key), Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}})
		if err == nil {
			require.NoError(t, client.Close())
			return true
		}
		require.ErrorIs(t, err, cache.ErrDenied)
		return false
	}
	require.True(t, admits(first) && !admits(second))
	for _, text := range []string{"", "too short", first} {
		write(text)
		d.rekey(ctx)
		require.True(t, admits(first))
	}
	write(second)
	d.rekey(ctx)
	require.True(t, admits(second) && !admits(first))
}

// Tenants of a daemon are apart, also in its metrics. SIGHUP has the files of keys read again:
// one that is missing changes nothing, one that says so revokes its tenant, and another key brings it back.
func TestDaemonWithTenants(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	dir := t.TempDir()
	write := func(name, key string) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(key), 0o600)) }
	write("red", "the first key of red\n")
	write("blue", "the only key of blue\n")
	c, err := parseConfig([]byte(`{"listen": "` + netip.AddrPortFrom(ends[1].Addr, 0).String() + `", "memory": "2MiB",
		"tenants": {"red": {"key": "` + dir + `/red"}, "blue": {"key": "` + dir + `/blue", "memory": "4MiB"}},
		"gateway": {"listen": "127.0.0.1:0", "tenant": "blue"}, "metrics": "127.0.0.1:0"}`))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	started, ended, hup := make(chan *service, 1), make(chan error, 1), make(chan os.Signal)
	go func() {
		ended <- run(serving, &c, slog.New(slog.NewTextHandler(t.Output(), nil)), hup, func(d *service) { started <- d })
	}()
	var d *service
	select {
	case d = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	from := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(ends[0].Addr, 0))}
	dial := func(tenant, key string) (*cache.Client, error) {
		return cache.Dial(ctx, d.rdma.Addr().String(), cache.Config{Dialer: from, Tenant: tenant, Key: []byte(key), FailFast: true})
	}
	red, err := dial("red", "the first key of red")
	require.NoError(t, err)
	defer red.Close()
	blue, err := dial("blue", "the only key of blue")
	require.NoError(t, err)
	defer blue.Close()
	require.NoError(t, red.Set(ctx, []byte("a"), cache.Item{}, 0))
	tcp, err := net.Dial("tcp", d.listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(tcp, "get a\r\nset b 0 0 1\r\nx\r\nquit\r\n")
	require.NoError(t, err)
	said, err := io.ReadAll(tcp)
	require.NoError(t, err)
	require.NoError(t, tcp.Close())
	require.Equal(t, "END\r\nSTORED\r\n", string(said))
	_, err = blue.Get(ctx, []byte("b"))
	require.NoError(t, err)

	w := httptest.NewRecorder()
	d.web().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, w.Body.String(), "\nrdmacached_items{tenant=\"blue\"} 1\n")
	require.Contains(t, w.Body.String(), "\nrdmacached_gateway_gets_total 1\n")
	require.Contains(t, w.Body.String(), "\nrdmacached_memory_bytes{tenant=\"red\"} 2.097152e+06\n")
	status := d.status()
	require.Len(t, status.Tenants, 2)
	require.Equal(t, []any{"red", 1}, []any{status.Tenants[1].Name, status.Tenants[1].Server.Clients})

	require.NoError(t, os.Remove(filepath.Join(dir, "red")))
	require.NoError(t, os.Remove(filepath.Join(dir, "blue")))
	for range 2 { // the second is taken when the first is done
		hup <- syscall.SIGHUP
	}
	again, err := dial("red", "the first key of red")
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.Equal(t, uint64(1), red.Stats().Sessions)
	write("red", "revoked\n")
	write("blue", "revoked\n")
	hup <- syscall.SIGHUP
	require.Eventually(t, func() bool { return !red.Stats().Connected }, time.Minute, time.Millisecond)
	_, err = dial("red", "the first key of red")
	require.ErrorIs(t, err, cache.ErrDenied)
	require.True(t, blue.Stats().Connected, "the gateway's tenant stays")
	write("red", "the second key of red")
	hup <- syscall.SIGHUP
	require.Eventually(t, func() bool {
		again, err := dial("red", "the second key of red")
		if err == nil {
			_, err = again.Get(ctx, []byte("a"))
			require.ErrorIs(t, err, cache.ErrNotFound)
			require.NoError(t, again.Close())
			return true
		}
		return false
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, uint64(1), blue.Stats().Sessions)
	stop()
	require.NoError(t, <-ended)
}

// notified is systemd, as far as it hears what a service says.
func notified(t *testing.T) (next func() string) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	return func() string {
		b := make([]byte, 100)
		require.NoError(t, l.SetReadDeadline(time.Now().Add(time.Minute)))
		n, err := l.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

// What cannot be listened on leaves nothing behind.
func TestDaemonThatCannotStart(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, more := range []string{
		`"gateway": {"listen": "` + taken.Addr().String() + `"}`,
		`"metrics": "` + taken.Addr().String() + `", "gateway": {"listen": "127.0.0.1:0"}`,
		`"device": "none0"`,
		`"memory": 5`,
	} {
		c, err := parseConfig([]byte(`{"listen": "` + netip.AddrPortFrom(ends[1].Addr, 0).String() + `", ` + more + `}`))
		require.NoError(t, err)
		require.Error(t, run(context.Background(), &c, slog.New(slog.DiscardHandler), nil, func(*service) { t.Error("it started") }), more)
	}
}
