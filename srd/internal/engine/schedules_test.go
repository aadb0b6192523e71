package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

var schedules = flag.Int("schedules", 0, "how many random schedules; 0 means 3000, and 300 with -short")

// Random schedules of loss to a fifth, bursts, reordering, duplication, dead paths and
// peers, restarts, full receivers, unauthenticated peers, replays and jumping clocks. Each message
// gets one status, and it is true; none is delivered twice; all memory comes back.
func TestSchedules(t *testing.T) {
	n := *schedules
	if n == 0 {
		n = 3000
		if testing.Short() {
			n = 300
		}
		if racing {
			n /= 10
		}
	}
	first := uint64(1)
	if s := os.Getenv("GOVERBS_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		n = 1
	}
	var results [10]int
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("GOVERBS_SEED=%d repeats this", seed)
				}
			}()
			w := schedule(t, seed)
			for i, r := range w.model.results {
				results[i] += r
			}
		}()
	}
	t.Log("statuses: ", results)
}

// The same seed does the same.
func TestSchedulesRepeat(t *testing.T) {
	for seed := range uint64(20) {
		a, b := schedule(t, seed), schedule(t, seed)
		if x, y := fmt.Sprint(a.now, a.events.Added, a.packets, a.model.results), fmt.Sprint(b.now, b.events.Added, b.packets, b.model.results); x != y {
			t.Fatalf("seed %d: %s, then %s", seed, x, y)
		}
	}
}

// schedule runs one.
func schedule(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	some := func(p float64) bool { return r.Float64() < p }
	cfg := simple(1 + r.IntN(6))
	cfg.MTU = 300 + r.IntN(800)
	cfg.Budget = 4 + r.IntN(600)
	if crowd := rand.New(rand.NewPCG(seed, 9)); crowd.IntN(4) == 0 { // so small that few are many
		cfg.Budget = 1 + crowd.IntN(3)
	}
	cfg.MaxMessage = 60000
	if some(0.4) {
		cfg.Key = &wire.Key{seed, 1}
	}
	if some(0.2) {
		cfg.MaxPeers = 2
	}
	w := newWorld(t, seed, 2+r.IntN(4), cfg)
	if mtus := rand.New(rand.NewPCG(seed, 11)); mtus.IntN(3) == 0 {
		w.short = true
		for _, n := range w.nodes {
			n.mtu = 300 + mtus.IntN(2000)
			n.start(0)
		}
	}
	macs := rand.New(rand.NewPCG(seed, 12))
	if macs.IntN(3) == 0 {
		w.resolve = time.Duration(1+macs.IntN(5000)) * time.Microsecond
		for _, n := range w.nodes {
			n.start(0)
		}
	}
	if some(0.3) {
		w.forge = 0.1
	}
	trouble := true
	links := make(map[[3]int]*link)
	worst := r.Float64() * 0.2
	only := r.IntN(4) // some schedules have one kind of trouble alone
	w.links = func(from, to, path int) *link {
		k := [3]int{from, to, path}
		l := links[k]
		if l == nil {
			l = &link{delay: time.Duration(20+r.IntN(200)) * time.Microsecond}
			if some(0.3) {
				l.jitter = time.Duration(r.IntN(300)+1) * time.Microsecond
			}
			if only != 0 || some(0.5) {
				l.loss = r.Float64() * worst
			}
			if some(0.3) {
				l.duplicate = r.Float64() * 0.3
			}
			if some(0.3) {
				l.reorder = r.Float64() * 0.3
			}
			if some(0.2) {
				l.burst = r.Float64() * 0.02
			}
			if some(0.1) && path != 0 {
				l.dead = true
			}
			if some(0.1) { // responses alone are lost
				l.lose = func(b []byte) bool { return len(b) < 120 && some(0.3) }
			}
			if some(0.2) {
				l.each, l.limit = 20*time.Microsecond, 2*time.Millisecond
			}
			links[k] = l
		}
		if !trouble {
			*l = link{delay: l.delay}
		}
		return l
	}
	hosts := rand.New(rand.NewPCG(seed, 8)) // of their own: schedules before there were slow ones stay what they are
	for _, n := range w.nodes {
		if hosts.IntN(6) == 0 {
			n.each = time.Duration(hosts.IntN(500)) * time.Microsecond
		}
		n.soon = hosts.IntN(2) == 0
		if some(0.3) {
			n.rooms = r.IntN(60000)
		}
		if some(0.2) {
			n.refuse = r.Float64() * 0.3
		}
	}
	span := time.Duration(5+r.IntN(300)) * time.Millisecond
	at := func(f func()) { w.after(time.Duration(r.Int64N(int64(span))), f) }
	pick := func() *node { return w.nodes[r.IntN(len(w.nodes))] }
	for range 10 + r.IntN(80) {
		at(func() {
			from, to := pick(), pick()
			if from == to {
				return
			}
			service := uint8(0)
			if some(0.6) {
				service = uint8(r.IntN(wire.Services))
			}
			size := r.IntN(200)
			switch {
			case some(0.3):
				size = r.IntN(5000)
			case some(0.1):
				size = r.IntN(70000)
			}
			l := w.model.post(from, to.id, service, size)
			from.pump()
			if some(0.08) {
				w.after(time.Duration(r.IntN(2000))*time.Microsecond, func() {
					if from.life == l.life {
						from.e.Advance(from.raw())
						from.e.Cancel(l.handle)
						l.givenUp = true
						from.pump()
					}
				})
			}
		})
	}
	w.model.patient = cfg.MaxPeers == 0
	if some(0.3) {
		w.model.patient = false
		at(func() {
			n, back := pick(), uint64(0)
			if cfg.Key == nil && some(0.3) { // cookies need no clock
				back = uint64(time.Hour)
			}
			w.model.crash(n, back)
			n.pump()
		})
	}
	if some(0.15) {
		w.model.patient = false
		at(func() {
			n := pick()
			n.silent = true
			w.after(time.Duration(r.Int64N(int64(3*time.Second))), func() {
				n.silent = false
				n.wakeAt = never
				n.pump()
			})
		})
	}
	if some(0.2) {
		at(func() {
			n := pick()
			w.model.patient = w.model.patient && cfg.Key == nil // greetings of the past may have met a predecessor
			n.offset += time.Duration(r.Int64N(int64(10*time.Hour))) - 5*time.Hour
			n.pump()
		})
	}
	if w.resolve > 0 && macs.IntN(2) == 0 {
		w.after(time.Duration(macs.Int64N(int64(span))), func() { w.nodes[macs.IntN(len(w.nodes))].mac++ })
	}
	w.run(w.now + span)
	trouble, w.forge = false, 0
	w.run(w.now + 60*time.Second)
	w.model.end()
	return w
}
