package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
)

type noStore struct{}

func (noStore) Do(context.Context, *kv.Request) (kv.Reply, error) {
	return kv.Reply{}, nil
}
func (noStore) StatLines() [][2]string { return nil }

// A file of users that is wrong changes nothing, and admits no client by mistake.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	g, err := gateway.New(gateway.Config{Store: noStore{}})
	require.NoError(t, err)
	defer g.Close()
	var out bytes.Buffer
	c := &config{}
	c.Gateway.Users = file
	d := &service{gateway: g, config: c, log: slog.New(slog.NewTextHandler(&out, nil))}
	write("ann:secret\n")
	d.reload()
	require.True(t, g.Stats().Passwords)
	for _, wrong := range []string{"", "ann\n"} {
		write(wrong)
		out.Reset()
		d.reload()
		require.True(t, g.Stats().Passwords, "%q", wrong)
		require.Contains(t, out.String(), "stay as they were")
	}
	(&service{}).reload() // without a gateway there is nothing to read
}

// A daemon that is told to stop before it serves ends without an error.
func TestStopsBeforeItServes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, run(ctx, &config{Listen: "127.0.0.1:0", Device: "none"}, slog.New(slog.DiscardHandler), nil, nil))
}

// A daemon that starts, or checks its configuration, leaves out the tenants that are revoked. Their snapshots are gone.
// The gateway's tenant cannot be revoked.
func TestRevokedAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	snapshot := filepath.Join(t.TempDir(), "records")
	require.NoError(t, os.WriteFile(file, []byte("revoked\n"), 0o600))
	require.NoError(t, os.WriteFile(snapshot, []byte("of the last life"), 0o600))
	c := &config{Listen: "127.0.0.1:0", Tenants: map[string]tenantConfig{"red": {Key: file, Snapshot: snapshot}, "blue": {Key: file}}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	require.NoError(t, c.check("rdmacached.json", log))
	require.FileExists(t, snapshot)
	d := &service{config: c, log: log}
	require.NoError(t, d.listen(t.Context()))
	defer func() { require.NoError(t, d.rdma.Close()) }()
	require.Empty(t, d.tenants.Names())
	require.NoFileExists(t, snapshot)
	d.rekey(t.Context())
	require.Empty(t, d.tenants.Names())

	c.Gateway.Listen, c.Gateway.Tenant = "127.0.0.1:0", "red"
	require.ErrorContains(t, c.check("rdmacached.json", log), "key of 7 bytes")
	require.ErrorContains(t, (&service{config: c, log: log}).listen(t.Context()), "key of 7 bytes")
}

// A health check while the daemon ends reports that.
func TestHealth(t *testing.T) {
	d := &service{cache: &server.Server{}, log: slog.New(slog.DiscardHandler)}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		d.web().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	require.Equal(t, http.StatusOK, get("/healthz").Code)
	d.stopping.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, get("/healthz").Code)
	require.Equal(t, "stopping\n", get("/healthz").Body.String())
}
