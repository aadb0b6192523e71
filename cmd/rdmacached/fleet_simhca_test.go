//go:build simhca && linux && cgo

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// fleet is an etcd, and processes of rdmacached in a fabric that are members of a cluster.
type fleet struct {
	*testing.T
	ctx     context.Context
	etcd    *etcd.Server
	members map[string]*process
}

// process is one rdmacached.
type process struct {
	f                    *fleet
	id, address, metrics string
	process              *os.Process
	ended                <-chan error
}

// port is one of those that no system gives out. Fabrics are of their own; addresses of lo are shared by the test programs of
// a host.
var port = 10_000 + os.Getpid()%10_000*2

// ttl is the TTL of the clusters in tests.
const ttl = 2 * time.Second

func newFleet(t *testing.T) *fleet {
	inFabric(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return &fleet{T: t, ctx: ctx, etcd: etcd.Start(t), members: make(map[string]*process)}
}

// start starts a server with an address of its own, 127.0.0.host, and a weight.
func (f *fleet) start(id string, host, weight int) *process {
	f.Helper()
	p := &process{f: f, id: id, address: fmt.Sprintf("127.0.0.%d:%d", host, port), metrics: fmt.Sprintf("127.0.0.%d:%d", host, port+1)}
	config := fmt.Appendf(nil, `{"listen": %q, "memory": "8MiB", "metrics": %q, "cluster": {
		"name": "test", "id": %q, "etcd": [%q], "advertise": %q, "weight": %d, "ttl": "%v", "drain": "60s"}}`,
		p.address, p.metrics, id, f.etcd.URL, p.address, weight, ttl)
	p.process, p.ended = startProcess(f.T, config, fmt.Sprintf("SIMHCA_ADDRESS=127.0.0.%d", host))
	f.Cleanup(p.kill)
	f.members[id] = p
	return p
}

// kill ends the process as kill -9 does, and waits for that.
func (p *process) kill() {
	if p.f.members[p.id] == p {
		_ = p.process.Kill()
		<-p.ended
		delete(p.f.members, p.id)
	}
}

// drain ends the process by SIGTERM, and waits until it has ended well.
func (p *process) drain() {
	p.f.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		require.NoError(p.f, err)
	case <-p.f.ctx.Done():
		p.f.Fatal("it does not end")
	}
	delete(p.f.members, p.id)
}

func (p *process) signal(s syscall.Signal) {
	p.f.Helper()
	require.NoError(p.f, p.process.Signal(s))
}

// get returns what the server says at a path, or nothing if it does not reply.
func (p *process) get(path string) []byte {
	ctx, cancel := context.WithTimeout(p.f.ctx, time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+path, nil)
	require.NoError(p.f, err)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return nil
	}
	return b
}

// status returns what the server says of its cluster.
func (p *process) status() *cachestatus.Cluster {
	p.f.Helper()
	c, err := cachestatus.GetCluster(p.f.ctx, p.metrics)
	require.NoError(p.f, err)
	return c
}

// healthy waits until the server says of its health what it should.
func (p *process) healthy(want string) {
	p.f.Helper()
	require.Eventually(p.f, func() bool { return string(p.get("/healthz")) == want }, time.Minute, 10*time.Millisecond, want)
}

// until waits for a state of the server's cluster.
func (p *process) until(what string, ok func(*cachestatus.Cluster) bool) {
	p.f.Helper()
	var last *cachestatus.Cluster
	for {
		if s, err := cachestatus.GetCluster(p.f.ctx, p.metrics); err == nil {
			if last = s; ok(s) {
				return
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case err := <-p.ended:
			p.f.Fatalf("%s has ended: %v", p.id, err)
		case <-p.f.ctx.Done():
			p.f.Fatalf("%s: not %s: %+v", p.id, what, last)
		}
	}
}

// settled waits until a server knows of so many members, and each has its share.
func (p *process) settled(members int) {
	p.f.Helper()
	require.NoError(p.f, cachestatus.Settled(p.f.ctx, p.metrics, members, p.ended))
}

// dial returns a client of the cluster.
func (f *fleet) dial(cfg cache.Config, seeds ...*process) *cache.Cluster {
	f.Helper()
	var addresses []string
	for _, p := range seeds {
		addresses = append(addresses, p.address)
	}
	var c *cache.Cluster
	require.Eventually(f, func() (ok bool) {
		var err error
		c, err = cache.DialCluster(f.ctx, addresses, cache.ClusterConfig{Config: cfg})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	f.Cleanup(func() { require.NoError(f, c.Close()) })
	return c
}
