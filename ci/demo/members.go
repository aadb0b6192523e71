package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/goverbs/goverbs/internal/cachestatus"
)

// crew is the members of a cluster, and what they have in common.
type crew struct {
	folder   string   // of their configurations
	etcd     []string // URLs
	ttl      time.Duration
	patience time.Duration // limit for a start, and for all to have their shares
	interval time.Duration // of a row in the table
	pause    time.Duration // of the load: servers run on the same processors
	death    string        // what a place's kill is to a member
	all      []*member
}

// member is a server of the cluster, a process of rdmacached.
type member struct {
	*crew
	id, host string
	place    place
	weight   int
	ended    <-chan error // how the process has ended, once, and closed then
}

// place is where a member runs: this machine, or a host of the lab.
type place interface {
	// run starts a program. The channel has how it ends, once, and is closed then.
	run(ctx context.Context, argv ...string) (ended <-chan error, err error)
	// terminate sends the program SIGTERM.
	terminate(ctx context.Context) error
	// kill ends the program without a word, and the host with it if that is a virtual one.
	// The next run finds the host as after a power failure.
	kill(ctx context.Context) error
}

// add adds a member that has not begun.
func (c *crew) add(host string, weight int, at place) {
	c.all = append(c.all, &member{crew: c, id: string(rune('a' + len(c.all))), host: host, weight: weight, place: at})
}

func (m *member) address() string { return net.JoinHostPort(m.host, "7481") }
func (m *member) metrics() string { return net.JoinHostPort(m.host, "9481") }

// begin starts the server, which joins the others.
func (m *member) begin(ctx context.Context) error {
	urls, err := json.Marshal(m.etcd)
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, `{"listen": %q, "memory": "16MiB", "metrics": %q, "log": "error",
		"cluster": {"name": "demo", "id": %q, "etcd": %s, "advertise": %[1]q, "ttl": "%[5]v", "weight": %d}}`, m.address(), m.metrics(), m.id, urls, m.ttl, m.weight)
	file := filepath.Join(m.folder, m.id+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(os.Args[0]), "rdmacached")
	if m.ended, err = m.place.run(ctx, program, "-config", file); err != nil {
		return err
	}
	if err := await(ctx, m.patience, m.metrics(), listens, m.ended); err != nil {
		return fmt.Errorf("server %s: %w", m.id, err)
	}
	return nil
}

// drain ends the server by SIGTERM, and waits until it has handed over all its records.
func (m *member) drain(ctx context.Context) error {
	if err := m.place.terminate(ctx); err != nil {
		return err
	}
	if err := <-m.ended; err != nil {
		return fmt.Errorf("server %s: %w", m.id, err)
	}
	return nil
}

// settled waits until there are so many members, and each has its share.
func (m *member) settled(ctx context.Context, members int) error {
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	return cachestatus.Settled(ctx, m.metrics(), members, m.ended)
}
