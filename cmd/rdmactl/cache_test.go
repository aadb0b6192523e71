package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/cmd/internal/cachestatus"
)

// Servers are shown that answer, and of the others that they do not.
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
	require.Regexp(t, `10\.77\.0\.2:7481 +serving +1h2m3s +8120 +64 MiB +25\.0% +0\.1% +7 +75\.0% +41 +3 RDMA \(rxe1\), 12 TLS with passwords\n`, out.String())

	out.Reset()
	require.Equal(t, 1, run(context.Background(), []string{"cache", at, "127.0.0.1:1"}, &out, &errOut))
	require.Contains(t, out.String(), "8120", "who answers is shown all the same")
	require.Regexp(t, `127\.0\.0\.1:1 +no answer`, out.String())
	require.Contains(t, errOut.String(), "refused")

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
	require.Regexp(t, `:7481 red +serving +1h2m3s +6 .* 0 RDMA \(rxe1\), 12 TLS with passwords\n`, out.String())
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
