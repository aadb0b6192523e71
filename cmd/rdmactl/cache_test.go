package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// Servers that reply are shown, and the others as silent.
func TestCache(t *testing.T) {
	status := cachestatus.Status{
		Listens: "10.77.0.2:7481", Device: "rxe1", State: "serving", Seconds: 3723.5,
		Server:   server.Stats{Items: 8120, Memory: 64 << 20, Bytes: 16 << 20, Quarantine: 64 << 10, Clients: 3, Gets: 200, Hits: 150, Reported: 41, Evicted: 7},
		Gateway:  "10.77.0.2:11211",
		Commands: gateway.Stats{Connections: 12, TLS: true, Passwords: true},
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case cachestatus.Path:
			require.NoError(t, json.NewEncoder(w).Encode(status))
		default:
			http.NotFound(w, r)
		}
	}))
	defer web.Close()
	at := strings.TrimPrefix(web.URL, "http://")
	var out, errOut bytes.Buffer
	require.Zero(t, run(context.Background(), []string{"cache", at}, &out, &errOut), errOut.String())
	require.Regexp(t, `10\.77\.0\.2:7481 +serving +1h2m3s +8120 +64 MiB +25\.0% +0\.1% +7 +75\.0% +41 +3 RDMA \(rxe1\), 12 memcached by TLS with passwords\n`, out.String())

	out.Reset()
	require.Equal(t, 1, run(context.Background(), []string{"cache", at, "127.0.0.1:1"}, &out, &errOut))
	require.Contains(t, out.String(), "8120", "a server that replies is shown all the same")
	require.Regexp(t, `127\.0\.0\.1:1 +no reply`, out.String())
	require.Contains(t, errOut.String(), "refused")

	revoked := status
	revoked.Server, revoked.Tenants = server.Stats{}, []cachestatus.Tenant{}
	status, revoked = revoked, status
	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", at}, &out, &errOut))
	require.Regexp(t, `10\.77\.0\.2:7481 +serving +1h2m3s( +-){7} +no tenants\n`, out.String())
	status = revoked

	status.Gateway, status.Server.Gets = "", 0
	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", "-json", at}, &out, &errOut))
	var got []cacheServer
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	require.Equal(t, []cacheServer{{Asked: at, Status: status}}, got)
	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", at}, &out, &errOut))
	require.Regexp(t, ` - +41 +3 RDMA \(rxe1\)\n`, out.String())

	status.Server.Streams, status.Hot = 2, []server.HotKey{{Key: "user:7\n", Share: 0.254}}
	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", at}, &out, &errOut))
	require.Contains(t, out.String(), "3 RDMA (rxe1), 2 without RDMA\n")
	require.Regexp(t, `\n\nSERVER +HOT KEY +OF GETS\n10\.77\.0\.2:7481 +"user:7\\n" +25\.4%\n$`, out.String())

	status.Server, status.Hot, status.Gateway, status.For = server.Stats{}, nil, "10.77.0.2:11211", "red"
	status.Tenants = []cachestatus.Tenant{
		{Name: "blue", Server: server.Stats{Items: 5, Clients: 1}}, {Name: "red", Server: server.Stats{Items: 6}, Hot: []server.HotKey{{Key: "k", Share: 1}}},
	}
	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", at}, &out, &errOut))
	require.Regexp(t, `:7481 blue +serving +1h2m3s +5 .* 1 RDMA \(rxe1\)\n`, out.String())
	require.Regexp(t, `:7481 red +serving +1h2m3s +6 .* 0 RDMA \(rxe1\), 12 memcached by TLS with passwords\n`, out.String())
	require.Regexp(t, `:7481 red +"k" +100\.0%\n$`, out.String())

	require.Equal(t, 2, run(context.Background(), []string{"cache"}, &out, &errOut))
}

// What is no rdmacached is not taken for one.
func TestCacheOfSomethingElse(t *testing.T) {
	for text, code := range map[string]int{"<html>": http.StatusOK, "gone": http.StatusNotFound} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		}))
		var out, errOut bytes.Buffer
		require.Equal(t, 1, run(context.Background(), []string{"cache", strings.TrimPrefix(web.URL, "http://")}, &out, &errOut))
		require.Contains(t, errOut.String(), "rdmacached")
		web.Close()
	}
}

// What a server says of itself is shown as text: it moves no cursor, and makes up no rows. Nor is it sent elsewhere.
func TestCacheOfAHostileServer(t *testing.T) {
	esc := "\x1b[2J\u009b2J\u202e\nrow"
	status := cachestatus.Status{
		Listens: "10.77.0.2:7481" + esc, Device: "rxe1" + esc, State: "serving" + esc, Seconds: 1e300, Gateway: esc, For: "red",
		Tenants: []cachestatus.Tenant{{Name: "red" + esc, Server: server.Stats{Items: -1, Bytes: -1, Memory: -1, Clients: -1}, Hot: []server.HotKey{{Key: esc, Share: -1e300}}}},
	}
	elsewhere := false
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.Host, "127.0.0.1:"):
			require.NoError(t, json.NewEncoder(w).Encode(status))
		default:
			elsewhere = true
		}
	}))
	defer web.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(web.URL, "http://"), ":")
	var out, errOut bytes.Buffer
	require.Zero(t, run(context.Background(), []string{"cache", "127.0.0.1:" + port}, &out, &errOut), errOut.String())
	require.Equal(t, 5, strings.Count(out.String(), "\n"), out.String())
	for _, r := range out.String() {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%q", r)
	}

	away := httptest.NewServer(http.RedirectHandler("http://localhost:"+port+"/status", http.StatusFound))
	defer away.Close()
	require.Equal(t, 1, run(context.Background(), []string{"cache", strings.TrimPrefix(away.URL, "http://")}, &out, &errOut))
	require.False(t, elsewhere)

	for name, says := range map[string]string{
		"a status line":  "HTTP/1.1 500 " + esc[:len(esc)-4] + "\r\nContent-Length: 0\r\n\r\n",
		"another's JSON": "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}",
		"no end":         "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("[", 16<<20+1),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = io.WriteString(c, says)
			}
		}()
		out.Reset()
		errOut.Reset()
		require.Equal(t, 1, run(context.Background(), []string{"cache", l.Addr().String()}, &out, &errOut), name)
		require.Contains(t, out.String(), "no reply", name)
		for _, r := range errOut.String() {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%s: %q", name, r)
		}
		require.NoError(t, l.Close())
	}
}

// One that hangs, or goes on for ever, holds up no other, and itself only for a while.
func TestCacheOfAServerThatHangs(t *testing.T) {
	status := cachestatus.Status{Listens: "10.77.0.2:7481", State: "serving"}
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, json.NewEncoder(w).Encode(status))
	}))
	defer good.Close()
	drips := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	defer drips.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var out, errOut bytes.Buffer
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	require.Equal(t, 1, run(ctx, []string{"cache", at(drips), silent.Addr().String(), at(good)}, &out, &errOut))
	require.Equal(t, 2, strings.Count(out.String(), "no reply"), out.String())
	require.Contains(t, out.String(), "10.77.0.2:7481")
}

// Of members the table of shards is shown once, that of the latest epoch.
func TestCacheCluster(t *testing.T) {
	two := []cachestatus.Member{{ID: "h1", Address: "10.77.0.2:7481", Weight: 1, Shards: 1000}, {ID: "h2", Address: "10.77.0.3:7481", Zone: "b", Weight: 2, Draining: true, Shards: 24}}
	clusters := []*cachestatus.Cluster{
		{Name: "prod", ID: "h1", State: "member", Epoch: 1001, Shards: 1000, Planned: 24, Left: 2.71, Moves: 976, Given: 3, Beats: 99, Missed: 1, Beat: 0.0025, Members: two},
		{Name: "prod", ID: "h2\n", State: "no quorum", Epoch: 1000, Members: two[:1]},
		nil,
	}
	var args []string
	for _, c := range clusters {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			require.NoError(t, json.NewEncoder(w).Encode(cachestatus.Status{Listens: "10.77.0.2:7481", Cluster: c}))
		}))
		defer web.Close()
		args = append(args, strings.TrimPrefix(web.URL, "http://"))
	}
	var out, errOut bytes.Buffer
	require.Zero(t, run(context.Background(), append([]string{"cache"}, args...), &out, &errOut), errOut.String())
	require.Regexp(t, `10\.77\.0\.2:7481 +prod +h1 +member +1001 +1000 +24 +2\.7s +976 +3 +0 +0 +2\.5ms +1\.0%\n`, out.String())
	require.Regexp(t, `10\.77\.0\.2:7481 +prod +h2\? +no quorum +1000 `, out.String())
	require.Regexp(t, `STATE\nprod +h1 +10\.77\.0\.2:7481 +- +1 +1000 +member\nprod +h2 +10\.77\.0\.3:7481 +b +2 +24 +draining\n$`, out.String())

	out.Reset()
	require.Zero(t, run(context.Background(), []string{"cache", args[2]}, &out, &errOut))
	require.NotContains(t, out.String(), "CLUSTER")
}
