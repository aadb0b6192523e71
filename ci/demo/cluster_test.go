//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/cachestatus"
)

// fakeMachine is a host of the lab whose programs run here.
type fakeMachine struct {
	mu     sync.Mutex
	power  context.Context
	off    context.CancelFunc
	starts int
}

func newMachine(t *testing.T) *fakeMachine {
	m := &fakeMachine{}
	m.power, m.off = context.WithCancel(t.Context())
	return m
}

func (m *fakeMachine) Exec(_ context.Context, argv ...string) (lab.Result, error) {
	m.mu.Lock()
	power := m.power
	m.mu.Unlock()
	c := exec.CommandContext(power, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	err := c.Run()
	if power.Err() != nil {
		return lab.Result{}, errors.New("gone")
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return lab.Result{}, err
	}
	return lab.Result{Code: c.ProcessState.ExitCode(), Stderr: stderr.Bytes()}, nil
}

func (m *fakeMachine) Kill(context.Context) error {
	m.off()
	return nil
}

func (m *fakeMachine) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts++
	m.power, m.off = context.WithCancel(ctx)
	return nil
}

// count has a program of a shell append a line to a file.
func count(file, then string) []string { return []string{"sh", "-c", "echo >>" + file + "; " + then} }

func lines(t *testing.T, file string) int {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return bytes.Count(b, []byte("\n"))
}

// A host of the lab has an etcd, and again after it has lost power, before a program runs there.
func TestRemote(t *testing.T) {
	var healthy atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" || !healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	etcds := filepath.Join(t.TempDir(), "etcds")
	m := newMachine(t)
	r := &remote{machine: m, folder: t.TempDir(), name: "7", patience: 100 * time.Millisecond, url: server.URL, etcd: count(etcds, "exec sleep 60")}
	r.boot(t.Context())
	_, err := r.run(t.Context(), "true")
	require.ErrorContains(t, err, "etcd on host 7: it is not ready")
	healthy.Store(true)
	r.patience = time.Minute

	ended, err := r.run(t.Context(), "true")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	ended, err = r.run(t.Context(), "sh", "-c", "echo it hurts >&2; exit 3")
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, "exit status 3: it hurts")

	started := filepath.Join(t.TempDir(), "started")
	ended, err = r.run(t.Context(), "sh", "-c", `trap 'exit 0' TERM; echo >"$0"; while :; do sleep 0.01; done`, started)
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, time.Minute, time.Millisecond)
	require.NoError(t, r.terminate(t.Context()))
	require.NoError(t, <-ended)
	require.Error(t, r.terminate(t.Context()), "it has ended")

	ended, err = r.run(t.Context(), "sleep", "60")
	require.NoError(t, err)
	require.NoError(t, r.kill(t.Context()))
	require.Error(t, <-ended)
	require.Error(t, <-r.etcdEnded)
	require.Zero(t, m.starts)
	ended, err = r.run(t.Context(), "true")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.Equal(t, 1, m.starts)
	require.Eventually(t, func() bool { return lines(t, etcds) == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, r.kill(t.Context()))
}

// An etcd that ends is told at once, with what it says.
func TestRemoteEtcdEnds(t *testing.T) {
	r := &remote{machine: newMachine(t), folder: t.TempDir(), name: "0", patience: time.Hour, url: "http://127.0.0.1:1",
		etcd: []string{"sh", "-c", "echo no disk >&2; exit 1"}}
	r.boot(t.Context())
	_, err := r.run(t.Context(), "true")
	require.ErrorContains(t, err, "no disk")
}

// Outside of the lab there is no place for the hosts.
func TestLabCrewOutside(t *testing.T) {
	t.Setenv("LAB_ARTIFACTS", "")
	_, err := labCrew(t.Context())
	require.ErrorContains(t, err, "rxelab -topo hosts=3 -artifacts DIR")
}

// stagePlace is a place where nothing runs: it keeps the command.
type stagePlace struct {
	argv       []string
	terminated bool
	ended      chan error
}

func (p *stagePlace) run(_ context.Context, argv ...string) (<-chan error, error) {
	p.argv, p.ended = argv, make(chan error, 1)
	return p.ended, nil
}

func (p *stagePlace) terminate(context.Context) error {
	p.terminated = true
	p.ended <- nil
	close(p.ended)
	return nil
}

func (p *stagePlace) kill(context.Context) error { return nil }

// newCrew returns a crew of one member on an address of its own, of which a server says what status returns.
func newCrew(t *testing.T, status func() *cachestatus.Cluster) (*crew, *stagePlace) {
	host := net.IPv4(127, 99, byte(rand.IntN(250)), byte(1+rand.IntN(250))).String()
	c := &crew{folder: t.TempDir(), etcd: []string{"http://h1:1", "http://h2:2"}, ttl: 5 * time.Second, patience: time.Minute, interval: 5 * time.Millisecond}
	p := &stagePlace{}
	c.add(host, 16, p)
	l, err := net.Listen("tcp", c.all[0].metrics())
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(cachestatus.Status{Listens: "here", Cluster: status()})
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return c, p
}

// A member is an rdmacached with a file, and has begun when it has an address for its metrics.
func TestMember(t *testing.T) {
	c, p := newCrew(t, func() *cachestatus.Cluster {
		return &cachestatus.Cluster{State: "member", Members: []cachestatus.Member{{ID: "a"}}}
	})
	m := c.all[0]
	require.NoError(t, m.begin(t.Context()))
	require.Equal(t, "rdmacached", filepath.Base(p.argv[0]))
	require.Equal(t, "-config", p.argv[1])
	b, err := os.ReadFile(p.argv[2])
	require.NoError(t, err)
	var got struct {
		Listen, Metrics string
		Cluster         struct {
			ID, Advertise, TTL string
			Etcd               []string
			Weight             int
		}
	}
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, m.address(), got.Listen)
	require.Equal(t, m.metrics(), got.Metrics)
	require.Equal(t, m.address(), got.Cluster.Advertise)
	require.Equal(t, "a", got.Cluster.ID)
	require.Equal(t, c.etcd, got.Cluster.Etcd)
	require.Equal(t, "5s", got.Cluster.TTL)
	require.Equal(t, 16, got.Cluster.Weight)
	require.NoError(t, m.settled(t.Context(), 1))
	require.NoError(t, m.drain(t.Context()))
	require.True(t, p.terminated)
}

// A process that ends before it is ready is an error at once.
func TestAwaitEnded(t *testing.T) {
	for _, how := range []error{nil, errors.New("no device")} {
		ended := make(chan error, 1)
		ended <- how
		err := await(t.Context(), time.Hour, "", func(context.Context, string) error { return errors.New("no") }, ended)
		require.ErrorContains(t, err, "it has ended")
		if how != nil {
			require.ErrorIs(t, err, how)
		}
	}
}

// A scene without losses fails with one; others print how many there were.
func TestPlay(t *testing.T) {
	known := true
	c, _ := newCrew(t, func() *cachestatus.Cluster {
		if !known {
			return nil
		}
		return &cachestatus.Cluster{Members: []cachestatus.Member{{ID: "a", Shards: 1024}}}
	})
	table := &clusterTable{load: &load{}, crew: c, begun: time.Now()}
	happens := func(miss bool, failure error) func(context.Context) error {
		return func(context.Context) error {
			table.load.count(miss, failure)
			return nil
		}
	}
	table.load.count(true, nil) // before it
	require.NoError(t, table.play(t.Context(), scene{"quiet", happens(false, nil), true}))
	require.ErrorIs(t, table.play(t.Context(), scene{"a miss", happens(true, nil), true}), cache.ErrNotFound)
	down := errors.New("down")
	require.ErrorIs(t, table.play(t.Context(), scene{"a failure", happens(false, down), true}), down)
	require.NoError(t, table.play(t.Context(), scene{"a death", happens(true, down), false}))
	known = false // and no error
	require.NoError(t, table.play(t.Context(), scene{"slow", happens(false, nil), true}))
	require.ErrorIs(t, table.play(t.Context(), scene{"over", func(context.Context) error { return down }, false}), down)
}

func TestShards(t *testing.T) {
	require.Equal(t, "?", shards(nil, "a"))
	c := &cachestatus.Cluster{Members: []cachestatus.Member{{ID: "a", Shards: 3}}}
	require.Equal(t, "3", shards(c, "a"))
	require.Equal(t, "-", shards(c, "b"))
}
