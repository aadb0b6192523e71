package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// crew is an etcd, and servers that are members of a cluster, each a process of rdmacached.
type crew struct {
	folder string
	etcd   []*etcd.Server
	all    []*member
}

// member is one of the servers. Its process is nil before it begins, and after it has ended.
type member struct {
	*crew
	id, host string
	process  *process
}

// muster starts etcd. No server has begun yet.
func muster(ctx context.Context, hosts []string) (*crew, error) {
	folder, err := os.MkdirTemp("", "demo-")
	if err != nil {
		return nil, err
	}
	c := &crew{folder: folder}
	for i, host := range hosts {
		c.all = append(c.all, &member{crew: c, id: string(rune('a' + i)), host: host})
	}
	if c.etcd, err = etcd.Run(ctx, filepath.Join(folder, "etcd"), io.Discard, 1); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *crew) close() {
	for _, m := range c.all {
		if m.process != nil {
			_ = m.process.kill()
		}
	}
	for _, e := range c.etcd {
		e.Close()
	}
	_ = os.RemoveAll(c.folder)
}

func (m *member) address() string { return net.JoinHostPort(m.host, "7481") }
func (m *member) metrics() string { return net.JoinHostPort(m.host, "9481") }

// begin starts the server, which joins the others.
func (m *member) begin(ctx context.Context) error {
	config := fmt.Appendf(nil, `{"listen": %q, "memory": "16MiB", "metrics": %q, "log": "error",
		"cluster": {"name": "demo", "id": %q, "etcd": [%q], "advertise": %[1]q, "ttl": "1s"}}`, m.address(), m.metrics(), m.id, m.etcd[0].URL)
	file := filepath.Join(m.folder, m.id+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(os.Args[0]), "rdmacached")
	var err error
	m.process, err = start(ctx, m.metrics(), listens, "env", "SIMHCA_ADDRESS="+m.host, program, "-config", file)
	return err
}

// drain ends the server by SIGTERM, and waits until it has handed over all its records.
func (m *member) drain() error {
	p := m.process
	m.process = nil
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := <-p.ended; err != nil {
		return fmt.Errorf("server %s: %w", m.id, err)
	}
	return nil
}

// kill ends the server as a power failure does.
func (m *member) kill() error {
	p := m.process
	m.process = nil
	return p.kill()
}

// settled waits until there are so many members, and each has its share.
func (m *member) settled(ctx context.Context, members int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return cachestatus.Settled(ctx, m.metrics(), members, m.process.ended)
}
