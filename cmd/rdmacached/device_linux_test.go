package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/cmd/internal/cachestatus"
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
	tcp, err := net.Dial("tcp", d.door.Addr().String())
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
	require.Equal(t, d.door.Addr().String(), status.Gateway)

	stop()
	require.NoError(t, <-ended)
	require.Equal(t, "STOPPING=1", systemd())
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the connection was closed, and not broken")
	require.Eventually(t, func() bool { return !client.Stats().Connected }, time.Minute, time.Millisecond)
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
