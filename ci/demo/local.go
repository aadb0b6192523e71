package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/etcd"
)

// localCrew returns members that are to run on this machine, each on the simulated device of an address, and starts
// an etcd for them. stop ends them all.
func localCrew(ctx context.Context, hosts []string) (c *crew, stop func(), err error) {
	folder, err := os.MkdirTemp("", "demo-")
	if err != nil {
		return nil, nil, err
	}
	servers, err := etcd.Run(ctx, filepath.Join(folder, "etcd"), io.Discard, 1)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	c = &crew{folder: folder, etcd: []string{servers[0].URL}, ttl: time.Second, patience: 20 * time.Second, interval: 250 * time.Millisecond,
		pause: time.Millisecond, death: "is killed"}
	for _, host := range hosts {
		c.add(host, 1, &local{host: host})
	}
	return c, func() {
		for _, m := range c.all {
			_ = m.place.kill(ctx)
		}
		servers[0].Close()
		_ = os.RemoveAll(folder)
	}, nil
}

// local is this machine, and an address of simulated devices.
type local struct {
	host    string
	process *process // nil: none has run
}

func (l *local) run(ctx context.Context, argv ...string) (<-chan error, error) {
	p, err := launch(ctx, "env", append([]string{"SIMHCA_ADDRESS=" + l.host}, argv...)...)
	if err != nil {
		return nil, err
	}
	l.process = p
	return p.ended, nil
}

func (l *local) terminate(context.Context) error { return l.process.Signal(syscall.SIGTERM) }

func (l *local) kill(context.Context) error {
	if l.process == nil {
		return nil
	}
	return l.process.kill()
}
