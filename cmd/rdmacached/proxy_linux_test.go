package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/ci/lab"
)

// A program that speaks memcached's protocol on a local socket has its hits by READ, counted;
// a server that goes is an error of its commands, and one that comes back is found.
func TestProxy(t *testing.T) {
	lab.NoLeftovers(t)
	ends := lab.Require(t, 2)
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("0123456789abcdef\n"), 0o600))
	text := func(at string) string {
		return `{"listen": "` + at + `", "memory": "8MiB", "lease": "1s", "key": "` + key + `"}`
	}
	d, end := begin(t, text(netip.AddrPortFrom(ends[1].Addr, 0).String()))
	c := proxyConfig{servers: d.cache.Addr().String(), listen: filepath.Join(t.TempDir(), "s"), from: ends[0].Addr, timeout: 300 * time.Millisecond, key: key, rdma: true}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var client *cache.Cluster
	var g *gateway.Server
	started, ended := make(chan bool), make(chan error, 1)
	go func() {
		ended <- proxy(ctx, c, slog.New(slog.NewTextHandler(t.Output(), nil)), func(_ net.Addr, c *cache.Cluster, s *gateway.Server) { client, g = c, s; close(started) })
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	nc, err := net.Dial("unix", c.listen)
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.SetDeadline(time.Now().Add(time.Minute)))
	in := bufio.NewReader(nc)
	say := func(command string) string {
		_, err := io.WriteString(nc, command+"\r\nmn\r\n")
		require.NoError(t, err)
		var all strings.Builder
		for {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			if line == "MN\r\n" {
				return all.String()
			}
			all.WriteString(line)
		}
	}
	require.Equal(t, "STORED\r\n", say("set a 5 0 4\r\nblue"))
	require.Eventually(t, func() bool { return client.Stats()[0].Whole && client.Stats()[0].Entries == 1 }, time.Minute, time.Millisecond)
	before := client.Stats()[0]
	require.Equal(t, "VALUE a 5 4\r\nblue\r\nEND\r\n", say("get a"))
	after := client.Stats()[0]
	require.Equal(t, before.Hits+1, after.Hits)
	require.Equal(t, before.Calls, after.Calls, "no message")
	require.Equal(t, "END\r\n", say("get none"))
	require.Equal(t, "NOT_STORED\r\n", say("add a 0 0 1\r\nx"))
	require.Equal(t, "EXISTS\r\n", say("cas a 0 0 1 999\r\nx"))
	require.Equal(t, "STORED\r\n8\r\n", say("set n 0 0 1\r\n7\r\nincr n 1"))
	require.Equal(t, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n", say("incr a 1"))
	require.Equal(t, "VA 4 f5 t-1\r\nblue\r\n", say("mg a v f t"))
	require.Contains(t, say("stats"), "STAT rdma_read_hits 1\r\n")
	require.Contains(t, say("stats"), "STAT transport RDMA\r\n")
	web := proxyWeb(client, g, slog.New(slog.DiscardHandler))
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		web.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	code, metrics := ask("/metrics")
	require.Equal(t, http.StatusOK, code)
	of := `{server="` + c.servers + `"`
	for _, line := range []string{"read_hits_total" + of + "} 1", "transport" + of + `,transport="RDMA"} 1`, "sessions_total" + of + "} 1", "probes_total" + of + "} 0"} {
		require.Contains(t, metrics, "\ncache_client_"+line+"\n")
	}
	require.Contains(t, metrics, "\nrdmacached_gateway_connections 1\n")
	code, _ = ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "DELETED\r\nEND\r\n", say("delete a\r\nget a"))

	end()
	for _, command := range []string{"get n", "set n 0 0 1\r\n9"} {
		require.Contains(t, say(command), "SERVER_ERROR")
	}
	code, _ = ask("/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	d, _ = begin(t, text(c.servers))
	require.Equal(t, c.servers, d.cache.Addr().String())
	require.Eventually(t, func() bool { return say("set n 0 0 1\r\n9") == "STORED\r\n" }, time.Minute, time.Millisecond)
	require.Equal(t, "VALUE n 0 1\r\n9\r\nEND\r\n", say("get n"))
	stop()
	require.NoError(t, <-ended)
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}
