package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/etcd"
	"github.com/goverbs/goverbs/internal/cachestatus"
	"github.com/goverbs/goverbs/internal/testproc"
)

// ttl is the default one.
const ttl = 3 * time.Second

// fleet is an etcd, and processes of rdmacached that are members of its cluster.
type fleet struct {
	program string
	folder  string
	host    int // of the first member: 127.0.0.host
	etcd    []*etcd.Server
	members map[string]*member
}

// newFleet starts an etcd of some members, and members a, b and so on from an address on.
func newFleet(program string, host, etcds, members int) (*fleet, error) {
	folder, err := os.MkdirTemp("", "bench-cluster-")
	if err != nil {
		return nil, err
	}
	f := &fleet{program: program, folder: folder, host: host, members: make(map[string]*member)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if f.etcd, err = etcd.Run(ctx, filepath.Join(folder, "etcd"), io.Discard, etcds); err != nil {
		return nil, errors.Join(err, f.close())
	}
	for i := range members {
		m, err := f.start(i)
		if err == nil && (i == 0 || i == members-1) { // the first one makes the placement
			err = m.settled(ctx, i+1)
		}
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

func (f *fleet) close() error {
	for _, m := range f.members {
		m.kill()
	}
	for _, e := range f.etcd {
		e.Close()
	}
	return os.RemoveAll(f.folder)
}

// member is a process of rdmacached.
type member struct {
	f                    *fleet
	id, address, metrics string
	process              *os.Process
	ended                <-chan error // how the process has ended, once, and closed then
}

// start starts the i-th member.
func (f *fleet) start(i int) (*member, error) {
	id, at := string(rune('a'+i)), fmt.Sprintf("127.0.0.%d", f.host+i)
	m := &member{f: f, id: id, address: at + ":7481", metrics: at + ":9481"}
	var urls []string
	for _, e := range f.etcd {
		urls = append(urls, e.URL)
	}
	etcd, err := json.Marshal(urls)
	if err != nil {
		return nil, err
	}
	config := fmt.Appendf(nil, `{"listen": %q, "memory": "64MiB", "metrics": %q, "cluster": {"name": "bench", "id": %q, "etcd": %s, "advertise": %q, "ttl": "%v"}}`,
		m.address, m.metrics, id, etcd, m.address, ttl)
	file := filepath.Join(f.folder, id+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(m.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command(f.program, "-config", file)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), "SIMHCA_ADDRESS="+at), log, log
	if m.ended, err = testproc.Start(c); err != nil {
		return nil, err
	}
	m.process, f.members[id] = c.Process, m
	return m, nil
}

// log returns the file with what the member says.
func (m *member) log() string { return filepath.Join(m.f.folder, m.id+".log") }

// kill ends the process as kill -9 does, and waits for that.
func (m *member) kill() {
	_ = m.process.Kill()
	<-m.ended
}

// drain ends the process by SIGTERM, and waits until it has ended well.
func (m *member) drain(ctx context.Context) error {
	if err := m.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-m.ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", m.id, ctx.Err())
	}
}

// settled waits until there are so many members, and each has its share.
func (m *member) settled(ctx context.Context, members int) error {
	err := cachestatus.Settled(ctx, m.metrics, members, m.ended)
	if err != nil {
		log, _ := os.ReadFile(m.log())
		err = fmt.Errorf("%s: %w: %s", m.id, err, rig.Tail(log))
	}
	return err
}

// dial returns a client of the cluster.
func (f *fleet) dial(ctx context.Context) (*cache.Cluster, error) {
	var addresses []string
	for _, m := range f.members {
		addresses = append(addresses, m.address)
	}
	return cache.DialCluster(ctx, addresses, cache.ClusterConfig{})
}
