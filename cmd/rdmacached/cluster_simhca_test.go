//go:build simhca && linux && cgo

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/internal/cachestatus"
	"github.com/goverbs/goverbs/internal/testproc"
)

// steady increments and reads counters all the time. Each operation must succeed, and nothing may be missed.
type steady struct {
	t       *testing.T
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	took    []time.Duration
	failure error
}

const counters = 200

func counter(i int) []byte { return fmt.Appendf(nil, "counter %d", i) }

func (f *fleet) steady(c *cache.Cluster) *steady {
	f.Helper()
	for i := range counters {
		require.NoError(f, c.Set(f.ctx, counter(i), cache.Item{Value: []byte("0")}, 0))
	}
	ctx, stop := context.WithCancel(f.ctx)
	s := &steady{t: f.T, stop: stop}
	const workers = 4
	for w := range workers {
		s.running.Go(func() {
			for n := 1; ; n++ {
				for i := w; i < counters; i += workers {
					if ctx.Err() != nil || !s.once(c, i, n) {
						return
					}
				}
			}
		})
	}
	return s
}

// once increments a counter for the nth time and reads it, and reports whether all was well.
func (s *steady) once(c *cache.Cluster, i, n int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	begun := time.Now()
	got, err := c.Increment(ctx, counter(i), 1)
	var it cache.Item
	if err == nil && got == uint64(n) {
		it, err = c.Get(ctx, counter(i))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.took = append(s.took, time.Since(begun)); err != nil || string(it.Value) != strconv.Itoa(n) {
		s.failure = fmt.Errorf("counter %d is %d, and %q by get, after %d: %w", i, got, it.Value, n, err)
		return false
	}
	return true
}

// fine checks that all was well, and logs how long a pair of operations took since the last time.
func (s *steady) fine(what string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(s.t, s.failure, what)
	require.NotEmpty(s.t, s.took, what)
	slices.Sort(s.took)
	s.t.Logf("%s: %d increments and gets: p50 %v, p99 %v, max %v", what, len(s.took), s.took[len(s.took)/2], s.took[len(s.took)*99/100], s.took[len(s.took)-1])
	s.took = nil
}

func (s *steady) end() {
	s.stop()
	s.running.Wait()
}

// heavy is the weight of the first member. Each of the others has an eighth of the shards.
const heavy = 6

// three returns three members, and clients that read in different ways.
func (f *fleet) three() (all []*process, clients []*cache.Cluster) {
	f.Helper()
	for i, id := range []string{"a", "b", "c"} {
		all = append(all, f.start(id, 11+i, []int{heavy, 1, 1}[i]))
		if i == 0 {
			all[0].settled(1)
		}
	}
	all[0].settled(3)
	for _, cfg := range []cache.Config{{}, {MapBytes: -1}, {PaceFrom: 1}} {
		cfg.RetryRDMA = time.Second
		clients = append(clients, f.dial(cfg, all...))
	}
	return all, clients
}

// keysOf returns keys whose server is a member.
func (f *fleet) keysOf(c *cache.Cluster, n int, p *process) (list [][]byte) {
	for i := 0; len(list) < n; i++ {
		if k := fmt.Appendf(nil, "key %d", i); c.Server(k).Address() == p.address {
			list = append(list, k)
		}
	}
	return list
}

// keyOf returns a key whose server is a member, and which no history has.
func (f *fleet) keyOf(c *cache.Cluster, p *process) []byte {
	return f.keysOf(c, historyKeys+1, p)[historyKeys]
}

// historyOperations returns how many operations a history has in each state of the cluster.
func historyOperations() int64 {
	if testing.Short() {
		return 500
	}
	return 20_000
}

// A proxy that names one member serves the keys of all, while one is drained.
func TestFabricClusterProxy(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", 31, 1), f.start("b", 32, 1)
	for _, p := range []*process{a, b} {
		p.until("both have shards", func(c *cachestatus.Cluster) bool { return len(c.Members) == 2 && c.Shards > 0 })
	}
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	started, ended := make(chan *cache.Cluster, 1), make(chan error, 1)
	c := proxyConfig{servers: a.address, listen: filepath.Join(t.TempDir(), "s"), timeout: 10 * time.Second}
	go func() {
		ended <- proxy(ctx, c, slog.New(slog.NewTextHandler(t.Output(), nil)), func(_ net.Addr, c *cache.Cluster, _ *gateway.Server) { started <- c })
	}()
	var client *cache.Cluster
	select {
	case client = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	nc, err := net.Dial("unix", c.listen)
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.SetDeadline(time.Now().Add(2*time.Minute)))
	in := bufio.NewReader(nc)
	say := func(command string, reply ...string) {
		t.Helper()
		_, err := io.WriteString(nc, command+"\r\n")
		require.NoError(t, err)
		for _, want := range reply {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, want+"\r\n", line)
		}
	}
	const keys = 200
	servers := make(map[string]bool)
	for i := range keys {
		key := fmt.Sprintf("key%d", i)
		say("set "+key+" 7 0 4\r\nblue", "STORED")
		servers[client.Server([]byte(key)).Address()] = true
	}
	require.Len(t, servers, 2)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		b.drain()
	}()
	for over, n := false, 0; !over; n++ {
		select {
		case <-drained:
			over = true
		default:
		}
		for i := range keys {
			say(fmt.Sprintf("get key%d", i), fmt.Sprintf("VALUE key%d 7 4", i), "blue", "END")
			say(fmt.Sprintf("touch key%d 0", i), "TOUCHED")
		}
	}
	say("flush_all", "OK")
	for i := range keys {
		say(fmt.Sprintf("get key%d", i), "END")
	}
	stop()
	require.NoError(t, <-ended)
}

// A server that drains while etcd does not reply waits for it. A second signal ends the process at once.
func TestFabricClusterSecondSignal(t *testing.T) {
	f := newFleet(t)
	a, b := f.start("a", 31, 1), f.start("b", 32, 1)
	for _, p := range []*process{a, b} {
		p.until("both are members", func(c *cachestatus.Cluster) bool { return len(c.Members) == 2 })
	}
	f.etcd.Stop(t)
	b.signal(syscall.SIGTERM)
	select {
	case err := <-b.ended:
		t.Fatalf("it has ended, with its shards: %v", err)
	case <-time.After(time.Second):
	}
	b.signal(syscall.SIGTERM)
	select {
	case err := <-b.ended:
		require.ErrorContains(t, err, "terminated")
	case <-f.ctx.Done():
		t.Fatal("it does not end")
	}
	delete(f.members, b.id)
}

// Servers join, are upgraded one by one, and are without etcd for a while: no request fails, nothing is missed, and
// operations of all kinds have one order.
func TestFabricClusterInPeace(t *testing.T) {
	f := newFleet(t)
	f.etcd.Stop(t)
	a := f.start("a", 11, heavy)
	a.healthy("joining\n")
	f.etcd.Continue(t)
	a.settled(1)
	a.healthy("ok\n")
	c := f.dial(cache.Config{}, a)
	s := f.steady(c)
	h := f.history([]*cache.Cluster{c, f.dial(cache.Config{MapBytes: -1}, a)}, f.keysOf(c, historyKeys, a))
	begun := time.Now()
	b := f.start("b", 12, 1)
	f.start("c", 13, 1)
	a.settled(3)
	t.Logf("two servers joined in %v", time.Since(begun))
	s.fine("two join")

	f.etcd.Stop(t)
	time.Sleep(3 * ttl)
	s.fine("etcd is silent")
	a.healthy("ok\n")
	f.etcd.Continue(t)
	a.until("served by etcd", func(st *cachestatus.Cluster) bool { return st.Promises > 0 && st.Left > 0 })

	begun = time.Now()
	b.drain()
	t.Logf("one was drained in %v", time.Since(begun))
	a.settled(2)
	s.fine("one is drained")
	f.start("b", 12, 1)
	a.settled(3)
	s.fine("it comes again")
	h.goesOn(historyOperations())
	s.end()
	s.fine("the end")
	require.Zero(t, a.status().Takeovers)
	require.Zero(t, h.refused.Load()+h.unknown.Load())
	h.check()
}

// A server is killed, and one hangs while its device responds: others take over. A way is cut, and nothing is lost.
// Operations of all kinds have one order.
func TestFabricClusterInTrouble(t *testing.T) {
	f := newFleet(t)
	all, clients := f.three()
	a, b := all[0], all[1]
	c := clients[0]
	h := f.history(clients, slices.Concat(f.keysOf(c, 4, a), f.keysOf(c, 6, b), f.keysOf(c, 6, all[2])))
	h.goesOn(historyOperations())

	of := f.keyOf(c, all[2])
	h.lost(h.now())
	begun := time.Now()
	all[2].kill()
	f.served(c, of)
	t.Logf("killed: taken over after %v", time.Since(begun))
	a.settled(2)
	all[2] = f.start("c", 13, 1)
	a.settled(3)
	h.goesOn(historyOperations())

	f.hangs(h, a, b, clients)
	h.goesOn(historyOperations())

	f.cuts(a, clients)
	h.goesOn(historyOperations())
	h.check()
}

// served sets a key until that succeeds.
func (f *fleet) served(c *cache.Cluster, key []byte) {
	f.Helper()
	require.Eventually(f, func() bool { return c.Set(f.ctx, key, cache.Item{Value: []byte("served")}, 0) == nil }, time.Minute, time.Millisecond)
}

// hangs stops a member, whose device goes on to respond, and continues it when others have its shards.
func (f *fleet) hangs(h *history, other, p *process, clients []*cache.Cluster) {
	f.Helper()
	c := clients[0]
	key := f.keyOf(c, p)
	require.NoError(f, c.Set(f.ctx, key, cache.Item{Value: []byte("old")}, 0))
	require.Eventually(f, func() bool { return c.Server(key).Stats().Whole }, time.Minute, time.Millisecond)
	h.lost(h.now())
	begun := time.Now()
	testproc.Stop(f, p.process) // from here on it executes no change: whatever it receives, others have its shards before it continues
	it, err := c.Get(f.ctx, key)
	require.NoError(f, err, "by READ, while a grant lasts")
	require.Equal(f, "old", string(it.Value))
	late := make(chan error, 1)
	go func() { late <- c.Set(f.ctx, key, cache.Item{Value: []byte("late")}, 0) }()
	missed := func(c *cache.Cluster) bool {
		it, err := c.Get(f.ctx, key)
		if err == nil {
			require.Equal(f, "old", string(it.Value))
		}
		return errors.Is(err, cache.ErrNotFound)
	}
	require.Eventually(f, func() bool { return missed(clients[1]) }, time.Minute, time.Millisecond)
	f.Logf("hangs: taken over after %v", time.Since(begun))
	require.ErrorIs(f, <-late, cache.ErrOutcomeUnknown)
	require.NoError(f, clients[1].Set(f.ctx, key, cache.Item{Value: []byte("new")}, 0))
	current := func() {
		for i, c := range clients {
			it, err := c.Get(f.ctx, key)
			if !errors.Is(err, cache.ErrUnavailable) {
				require.NoError(f, err, i)
				require.Equal(f, "new", string(it.Value), i)
			}
		}
	}
	for range 100 {
		current()
	}
	p.signal(syscall.SIGCONT)
	for begun := time.Now(); time.Since(begun) < ttl; {
		current()
	}
	other.settled(3)
	current()
}

// cuts cuts one way between this process and a member for longer than the transport tries again, and the other one.
// Then all clients reach the member.
func (f *fleet) cuts(p *process, clients []*cache.Cluster) {
	f.Helper()
	host, _, _ := strings.Cut(p.address, ":")
	takeovers := p.status().Takeovers
	for _, ends := range [][2]string{{here, host}, {host, here}} {
		cut(f.T, ends[0], ends[1], time.Second)
		begun := time.Now()
		for _, c := range clients {
			f.served(c, f.keyOf(c, p))
		}
		f.Logf("%s was cut from %s: all clients are served after %v", ends[1], ends[0], time.Since(begun))
	}
	require.Equal(f, takeovers, p.status().Takeovers)
}
