//go:build simhca && linux && cgo

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testproc"
	"github.com/goverbs/goverbs/internal/testseed"
)

// historiesOf returns how many histories there are, and for how long each has faults.
func historiesOf(t *testing.T) (n int, each time.Duration) {
	n, each = 20, time.Minute
	if testing.Short() {
		n, each = 1, 10*time.Second
	}
	if s := os.Getenv("GOVERBS_HISTORIES"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err, "GOVERBS_HISTORIES")
		each = time.Minute
	}
	return n, each
}

// Histories of processes with faults one after the other, at random. The operations of each have one order.
func TestFabricClusterHistories(t *testing.T) {
	n, each := historiesOf(t)
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) { newFleet(t).faults(rng, each) })
	}
}

// faults has a history of a cluster with faults for some time. The first member has none.
func (f *fleet) faults(rng *rand.Rand, each time.Duration) {
	all, clients := f.three()
	a, c := all[0], clients[0]
	h := f.slowHistory(clients, slices.Concat(f.keysOf(c, 4, a), f.keysOf(c, 6, all[1]), f.keysOf(c, 6, all[2])), 16*time.Millisecond)
	deaths := uint64(0) // of members
	dead := func() {
		deaths++
		a.settled(2)
	}
	counts := make(map[string]int)
	for begun := time.Now(); time.Since(begun) < each; {
		i := 1 + rng.IntN(2)
		p := all[i]
		again := func() {
			all[i] = f.start(p.id, 11+i, 1)
			a.settled(3)
		}
		fault := []string{"killed", "hangs", "drained", "cut", "etcd hangs"}[rng.IntN(5)]
		counts[fault]++
		switch fault {
		case "killed":
			h.lost(h.now())
			p.kill()
			dead()
			again()
		case "hangs":
			h.lost(h.now())
			testproc.Stop(f, p.process)
			dead()
			p.signal(syscall.SIGCONT)
			a.settled(3)
		case "drained":
			p.drain()
			again()
		case "cut":
			ends := []string{here, fmt.Sprintf("127.0.0.%d", 11+rng.IntN(3))}
			rng.Shuffle(2, func(i, k int) { ends[i], ends[k] = ends[k], ends[i] })
			cut(f.T, ends[0], ends[1], time.Duration(rng.IntN(1000))*time.Millisecond)
		case "etcd hangs":
			f.etcd.Stop(f)
			time.Sleep(ttl + ttl/2)
			f.etcd.Continue(f)
			a.settled(3)
		}
		h.goesOn(100)
	}
	f.Logf("faults: %v", counts)
	for a.status().Takeovers > deaths { // a member had no CPU for a TTL
		deaths++
		f.Log("a member was taken for dead")
		h.lost(0)
	}
	h.check()
}
