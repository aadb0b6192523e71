package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

var large = flag.String("large", "", "`folder` for the tables of simulations of up to 10,000 nodes, which take minutes; empty means small ones, and no tables")

// outcome is the result of a simulation of a number of nodes.
type outcome struct {
	nodes        int
	goodput      float64 // of the links that are full
	median, late time.Duration
	again        float64       // packets sent again, of all
	cost         time.Duration // of the processor, for each packet
	bytes        float64       // of memory for each node
	port         port
}

// port counts what the port of node 0 takes.
type port struct{ parts, greetings, probes, echoes, others int }

func (p *port) take(to int, packet []byte) {
	const hasPart = 2
	switch kind := wire.Type(packet[0] & 15); {
	case to != 0:
	case packet[1]&hasPart != 0:
		p.parts++
	case kind == wire.Hello:
		p.greetings++
	case kind == wire.Probe:
		p.probes++
	case kind == wire.Echo:
		p.echoes++
	default:
		p.others++
	}
}

func (o outcome) String() string {
	return fmt.Sprintf("%6d nodes: %.3f of the link, median %v, 99 %% within %v, %.4f sent again, %v and %.0f bytes a packet and node; node 0's port took %+v",
		o.nodes, o.goodput, o.median.Round(time.Microsecond), o.late.Round(time.Microsecond), o.again, o.cost, o.bytes, o.port)
}

func processor() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano())
}

const packetTime = 10 * time.Microsecond // at the narrowest place: the port of the receiver

// fabric is n nodes, each behind a port, in four planes.
func fabric(t testing.TB, n int, budget int) *world {
	cfg := simple(4)
	cfg.Key = &wire.Key{1, 2}
	cfg.Budget = budget
	cfg.PeerTimeout = 60 * time.Second
	w := newWorld(t, 1, n, cfg)
	ports := make([]link, n)
	for i := range ports {
		ports[i] = link{delay: 20 * time.Microsecond, each: packetTime, limit: 5 * time.Millisecond}
	}
	w.links = func(_, to, _ int) *link { return &ports[to] }
	return w
}

// simulate sends from each node, and waits for all statuses.
func simulate(t testing.TB, n, budget, messages, size int, to func(i int) int) outcome {
	w := fabric(t, n, budget)
	var took port
	w.taken = took.take
	began := processor()
	start := w.now
	for i, node := range w.nodes {
		for range messages {
			if k := to(i); k != i {
				w.model.post(node, k, Reliable, size)
			}
		}
		node.pump()
	}
	for w.model.open > 0 && w.now < start+time.Minute {
		w.run(w.now + time.Millisecond)
	}
	require.Zero(t, w.model.open)
	var times []time.Duration
	last := start
	bytes, receivers := 0, make(map[int]bool)
	for _, l := range w.model.sent {
		require.Equal(t, Delivered, l.status)
		require.Equal(t, 1, l.count)
		times = append(times, l.settle-l.sentAt)
		last = max(last, l.settle)
		bytes += l.size
		receivers[l.to] = true
	}
	slices.Sort(times)
	again := uint64(0)
	for _, node := range w.nodes {
		again += node.e.Stats.Retransmitted
	}
	cost := (processor() - began) / time.Duration(w.packets)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	per := float64(w.nodes[0].e.fragment) / packetTime.Seconds() * float64(len(receivers))
	return outcome{nodes: n, goodput: float64(bytes) / (last - start).Seconds() / per, median: quantile(times, 0.5), late: quantile(times, 0.99),
		again: float64(again) / float64(w.packets), cost: cost, bytes: float64(m.HeapAlloc) / float64(n), port: took}
}

func sizes() []int {
	if *large != "" {
		return []int{10, 100, 1000, 10000}
	}
	return []int{10, 100}
}

// Each of many nodes sends to another one: what one costs does not depend on how many
// there are.
func TestPermutation(t *testing.T) {
	long(t)
	var all []outcome
	for _, n := range sizes() {
		o := simulate(t, n, 1024, 20, 8000, func(i int) int { return (i*7 + 3) % n })
		t.Log(o)
		require.Greater(t, o.goodput, 0.5)
		all = append(all, o)
	}
	draw(t, "permutation", all)
}

// All nodes send to one. It takes few packets but parts of messages: of a thousand the port's
// queue takes five hundred first packets, which have a part; those that greet again have none.
func TestLargeIncast(t *testing.T) {
	long(t)
	var all []outcome
	for _, n := range []int{10, 100, 1000, 10000} {
		if n > 1000 && *large == "" {
			break
		}
		each := max(1, 2000/n)
		o := simulate(t, n, 256, each, 8000, func(int) int { return 0 })
		t.Log(o)
		switch {
		case n <= 100:
			require.Greater(t, o.goodput, 0.95)
		case n == 1000:
			require.Greater(t, o.goodput, 0.9)
		default: // each has a greeting and nine parts
			require.Greater(t, o.goodput, 0.85)
		}
		require.Less(t, o.port.probes+o.port.echoes, o.port.parts/20)
		all = append(all, o)
	}
	draw(t, "incast", all)
}

// With ten times as much to send greetings hardly count, and many senders have what few have.
func TestLongIncast(t *testing.T) {
	long(t)
	var all []outcome
	for _, n := range []int{10, 100, 1000, 10000} {
		if n != 1000 && testing.Short() || n > 1000 && *large == "" {
			continue
		}
		each := max(10, 20000/n)
		o := simulate(t, n, 256, each, 8000, func(int) int { return 0 })
		t.Log(o)
		require.Greater(t, o.goodput, 0.96)
		all = append(all, o)
	}
	draw(t, "long-incast", all)
}

// A node has very many peers, each of which it knows.
func TestHundredThousandPeers(t *testing.T) {
	long(t)
	n := 2000
	if *large != "" {
		n = 100000
	}
	hub, q := direct(Config{Config: session.Config{MaxPeers: 2 * n}, Paths: 4}, 0)
	buf := make([]byte, 8192)
	now := time.Millisecond
	var marks []time.Duration
	began := processor()
	for i := range n {
		peer, _ := direct(Config{Paths: 4}, i+1)
		_, err := peer.Send(hub.cfg.Addr, Message{Len: 64, Now: true})
		require.NoError(t, err)
		for range 3 {
			now += time.Millisecond
			carry(hub, peer, now, buf)
		}
		if (i+1)%(n/10) == 0 {
			marks = append(marks, (processor()-began)/time.Duration(n/10))
			began = processor()
		}
	}
	require.Equal(t, n, q.delivered)
	t.Logf("%d peers, of the processor for a greeting and a message, by tenths of them: %v", n, marks)
}

// draw writes a table that ci/bench/draw makes a plot of.
func draw(t *testing.T, name string, all []outcome) {
	if *large == "" {
		return
	}
	var table strings.Builder
	table.WriteString("nodes,\"median, us\",\"99 %, us\",\"goodput, % of the link\",\"processor, us a packet\"\n")
	for _, o := range all {
		fmt.Fprintf(&table, "%d,%g,%g,%g,%g\n", o.nodes, float64(o.median)/1e3, float64(o.late)/1e3, 100*o.goodput, float64(o.cost)/1e3)
	}
	require.NoError(t, os.MkdirAll(*large, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(*large, "srd-"+name+".csv"), []byte(table.String()), 0o644))
}
