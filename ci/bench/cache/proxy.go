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
	"github.com/goverbs/goverbs/ci/bench/measure"
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

// newLocalMemcached is a memcached that a program asks through a unix socket: no proxy beside a
// program can be faster than it, since the proxy reads from the same socket and has the value
// still to fetch.
func newLocalMemcached() (*memcached, error) {
	dir, err := os.MkdirTemp("", "memcached")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	return startMemcached(socket, func() (*tcpClient, error) { return dialTCP(&net.Dialer{}, "unix", socket) }, "-s", socket)
}

// proxyGet compares a program beside its proxy, and one beside a memcached of its own, with one
// that asks memcached over the wire.
func proxyGet(theirs *rig.Once[*memcached]) harness.Benchmark {
	const local = "memcached on a unix socket"
	ours, bound := rig.Lazy(newProxied), rig.Lazy(newLocalMemcached)
	gets := func(m *memcached, _ context.Context) (float64, error) { return m.gets(64) }
	return harness.Benchmark{Name: "proxy_get_64B_vs_memcached", Judged: harness.Both,
		Sides: []harness.Side{
			{Name: "ours", Run: ours.Pass(func(p *proxied, _ context.Context) (float64, error) { return p.client.gets(64) })},
			{Name: local, Run: bound.Pass(gets)},
			{Name: tcp, Run: theirs.Pass(gets)},
		},
		Figures: []harness.Figure{
			{Name: "proxy_get_64B_vs_memcached", Unit: "us", Of: "ours", Baseline: tcp, Target: measure.AtMost(0.5)},
			{Name: "unix_memcached_64B_vs_memcached", Unit: "us", Of: local, Baseline: tcp},
		}}
}
