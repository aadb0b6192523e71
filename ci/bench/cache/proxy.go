package cache

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/measure"
)

const proxyRole = "cache-proxy"

// store is a client as a gateway's store, as rdmacached's proxy has it.
type store struct{ *cache.Client }

func (s store) StatLines() [][2]string { return nil }

// proxy speaks memcached's protocol on a unix socket, until it is killed. at is the socket, a
// comma, and the server's address.
func proxy(ctx context.Context, at string) error {
	socket, address, _ := strings.Cut(at, ",")
	d, err := dialer()
	if err != nil {
		return err
	}
	c, err := soon(func() (*cache.Client, error) {
		return cache.Dial(ctx, address, cache.Config{Dialer: d, RequireRDMA: true})
	})
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{Store: store{c}})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return g.Serve(l)
}

// proxied is a proxy with a client, beside a server.
type proxied struct {
	daemon
	client *tcpClient
}

func newProxied() (*proxied, error) {
	s, err := newServed()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return nil, err
	}
	p, socket := &proxied{}, filepath.Join(dir, "s")
	if p.daemon, err = start(s.at, exec.Command(self, "-role", proxyRole, "-at", socket+","+s.at)); err != nil {
		return nil, err
	}
	p.client, err = soon(func() (*tcpClient, error) { return dialTCP(&net.Dialer{}, "unix", socket) })
	return p, err
}

// proxyGet compares a program beside its proxy with one that asks memcached over the wire.
func proxyGet(theirs *rig.Once[*memcached]) harness.Benchmark {
	ours := rig.Lazy(newProxied)
	f := harness.Figure{Name: "proxy_get_64B_vs_memcached", Unit: "us", Target: measure.AtMost(0.5)}
	return harness.Compare(f, harness.Both, ours.Pass(func(p *proxied, _ context.Context) (float64, error) { return p.client.gets(64) }),
		harness.Side{Name: tcp, Run: theirs.Pass(func(m *memcached, _ context.Context) (float64, error) { return m.gets(64) })})
}
