package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// cacheServer is what a running rdmacached says of itself, or why it says nothing.
type cacheServer struct {
	Asked string // where its metrics are
	Error string `json:",omitempty"`
	cachestatus.Status
}

type cacheResult []cacheServer

// caches asks all at once: one that does not respond holds up no other.
func caches(ctx context.Context, args []string) (result, error) {
	args, err := flags(args, 1, math.MaxInt, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all, errs := make(cacheResult, len(args)), make([]error, len(args))
	var asked sync.WaitGroup
	for i, at := range args {
		asked.Go(func() {
			all[i].Asked = at
			if all[i].Status, errs[i] = cachestatus.Get(ctx, at); errs[i] != nil {
				all[i].Error = errs[i].Error()
			}
		})
	}
	asked.Wait()
	return all, errors.Join(errs...)
}

func (a cacheResult) text(w io.Writer) error {
	var t table
	t.row("SERVER", "STATE", "UP", "ITEMS", "MEMORY", "USED", "QUARANTINE", "EVICTED", "HIT RATE", "READS TOLD", "TRANSPORT")
	for i := range a {
		s := &a[i]
		if s.Error != "" {
			t.row(s.Asked, "no reply", "-", "-", "-", "-", "-", "-", "-", "-", "-")
			continue
		}
		switch {
		case s.Tenants == nil:
			t.row(s.cells(s.Listens, &s.Server, true)...)
		case len(s.Tenants) == 0: // all have been revoked
			t.row(s.Listens, s.State, s.up(), "-", "-", "-", "-", "-", "-", "-", "no tenants")
		}
		for k := range s.Tenants {
			n := &s.Tenants[k]
			t.row(s.cells(s.Listens+" "+n.Name, &n.Server, n.Name == s.For)...)
		}
	}
	if err := t.write(w); err != nil {
		return err
	}
	if err := a.cluster(w); err != nil {
		return err
	}
	return a.hot(w)
}

// cells are a row. The daemon's gateway is in one of its rows.
func (s *cacheServer) cells(name string, n *server.Stats, gateway bool) []any {
	return []any{name, s.State, s.up(), n.Items, mebibytes(n.Memory), percent(uint64(n.Bytes), uint64(n.Memory)),
		percent(uint64(n.Quarantine), uint64(n.Memory)), n.Evicted, percent(n.Hits, n.Gets), n.Reported, s.transport(n, gateway)}
}

func (s *cacheServer) up() time.Duration { return time.Duration(s.Seconds) * time.Second }

// cluster shows the servers that are members of a cluster, and the table of shards of the one with the latest.
func (a cacheResult) cluster(w io.Writer) error {
	var t table
	t.row("SERVER", "CLUSTER", "ID", "STATE", "EPOCH", "SHARDS", "TO MOVE", "DEADLINE", "CAME", "GIVEN", "TAKEOVERS", "PROMISES", "ETCD", "MISSED")
	latest := make(map[string]*cachestatus.Cluster)
	var names []string
	for i := range a {
		c := a[i].Cluster
		if c == nil {
			continue
		}
		t.row(a[i].Listens, c.Name, c.ID, c.State, c.Epoch, c.Shards, c.Planned, fmt.Sprintf("%.1fs", c.Left), c.Moves, c.Given, c.Takeovers, c.Promises,
			fmt.Sprintf("%.1fms", 1000*c.Beat), percent(c.Missed, c.Beats+c.Missed))
		switch before := latest[c.Name]; {
		case before == nil:
			names = append(names, c.Name)
			fallthrough
		case before.Epoch < c.Epoch:
			latest[c.Name] = c
		}
	}
	if len(names) == 0 {
		return nil
	}
	var members table
	members.row("CLUSTER", "MEMBER", "ADDRESS", "ZONE", "WEIGHT", "SHARDS", "STATE")
	for _, name := range names {
		for _, m := range latest[name].Members {
			state := "member"
			if m.Draining {
				state = "draining"
			}
			members.row(name, m.ID, m.Address, m.Zone, m.Weight, m.Shards, state)
		}
	}
	for _, one := range []*table{&t, &members} {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := one.write(w); err != nil {
			return err
		}
	}
	return nil
}

// hot shows the keys that are asked for most, if there are any.
func (a cacheResult) hot(w io.Writer) error {
	var t table
	t.row("SERVER", "HOT KEY", "OF GETS")
	some := false
	add := func(name string, keys []server.HotKey) {
		for _, k := range keys {
			some = true
			t.row(name, strconv.Quote(k.Key), fmt.Sprintf("%.1f%%", 100*k.Share))
		}
	}
	for i := range a {
		add(a[i].Listens, a[i].Hot)
		for _, n := range a[i].Tenants {
			add(a[i].Listens+" "+n.Name, n.Hot)
		}
	}
	if !some {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.write(w)
}

func mebibytes(n int) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// transport is by what clients are connected.
func (s *cacheServer) transport(n *server.Stats, gateway bool) string {
	text := fmt.Sprintf("%d RDMA (%s)", n.Clients, s.Device)
	if n.Streams > 0 {
		text += fmt.Sprintf(", %d without RDMA", n.Streams)
	}
	if s.Gateway == "" || !gateway {
		return text
	}
	over := "memcached"
	if s.Commands.TLS {
		over += " by TLS"
	}
	if s.Commands.Passwords {
		over += " with passwords"
	}
	return fmt.Sprintf("%s, %d %s", text, s.Commands.Connections, over)
}
