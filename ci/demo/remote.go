package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/ci/lab"
)

// labCrew returns members that are to run on the hosts of the lab, one on each, and starts a member of etcd beside each.
// Configurations and etcd's data are in the folder that the hosts share, as on a disk: they outlive a host.
func labCrew(ctx context.Context) (*crew, error) {
	folder := os.Getenv("LAB_ARTIFACTS")
	if folder == "" || lab.Hosts() < 3 {
		return nil, errors.New("the cluster needs three hosts of the lab, and a folder that they share: rxelab -topo hosts=3 -artifacts DIR")
	}
	program, err := etcd.Path(ctx)
	if err != nil {
		return nil, err
	}
	c := &crew{folder: folder, ttl: 5 * time.Second, patience: 3 * time.Minute, interval: time.Second,
		pause: 100 * time.Millisecond, death: "and its host lose power, and etcd a member"}
	var clients, peers []string
	for _, a := range lab.Addrs()[:3] {
		clients = append(clients, "http://"+net.JoinHostPort(a.String(), "2379"))
		peers = append(peers, "http://"+net.JoinHostPort(a.String(), "2380"))
	}
	c.etcd = clients
	for i, a := range lab.Addrs()[:3] {
		r := &remote{machine: lab.Host(i), folder: folder, name: strconv.Itoa(i), patience: c.patience, url: clients[i],
			// An emulated host is slow: etcd would take another leader again and again.
			etcd: append([]string{program, "--heartbeat-interval", "200", "--election-timeout", "2000"},
				etcd.Args(i, filepath.Join(folder, "etcd"), clients, peers)...)}
		r.boot(ctx)
		weight := 1
		if i == 0 {
			weight = 8 // few shards move: emulated hosts take a second for 32, and rest three
		}
		c.add(a.String(), weight, r)
	}
	fmt.Println("each of three hosts starts a member of etcd, and two of them a server: emulated, they take a minute or more")
	return c, nil
}

// machine is a host of the lab.
type machine interface {
	Exec(ctx context.Context, argv ...string) (lab.Result, error)
	Kill(ctx context.Context) error
	Start(ctx context.Context) error
}

// remote is a host of the lab, with a member of etcd.
type remote struct {
	machine
	folder, name string
	patience     time.Duration
	etcd         []string // its command
	url          string   // of etcd there
	etcdEnded    <-chan error
	off          bool
}

// boot starts etcd.
func (r *remote) boot(ctx context.Context) { r.etcdEnded = r.begin(ctx, r.etcd...) }

// begin has a program run in the background.
func (r *remote) begin(ctx context.Context, argv ...string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		result, err := r.Exec(ctx, argv...)
		if err == nil && result.Code != 0 {
			err = fmt.Errorf("exit status %d: %s", result.Code, result.Stderr)
		}
		ended <- err
	}()
	return ended
}

// pid returns the file with the program's process id.
func (r *remote) pid() string { return filepath.Join(r.folder, r.name+".pid") }

func (r *remote) run(ctx context.Context, argv ...string) (<-chan error, error) {
	if r.off {
		if err := r.Start(ctx); err != nil {
			return nil, err
		}
		r.off = false
		r.boot(ctx)
	}
	healthy := func(_ context.Context, url string) error { return etcd.Healthy(url) }
	if err := await(ctx, r.patience, r.url, healthy, r.etcdEnded); err != nil {
		return nil, fmt.Errorf("etcd on host %s: %w", r.name, err)
	}
	return r.begin(ctx, append([]string{"sh", "-c", `echo $$ >"$0"; exec "$@"`, r.pid()}, argv...)...), nil
}

func (r *remote) terminate(ctx context.Context) error {
	return <-r.begin(ctx, "sh", "-c", `kill $(cat "$0")`, r.pid())
}

func (r *remote) kill(ctx context.Context) error {
	r.off = true
	return r.Kill(ctx)
}
