package offload

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

var schedules = flag.Int("schedules", 0, "how many random schedules; 0 means 3000, and 200 with -short")

// Random schedules of packets out of order, failures, receivers without buffers, silence,
// restarts, unauthenticated peers, replays and jumping clocks. Each message gets one status, and it is
// true; none is delivered twice; all memory and all slots come back.
func TestSchedules(t *testing.T) {
	n := *schedules
	if n == 0 {
		n = 3000
		if testing.Short() {
			n = 200
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
			for i, r := range w.results {
				results[i] += r
			}
		}()
	}
	t.Log("statuses: ", results)
	if n > 100 {
		for s := engine.Delivered; s <= engine.Cancelled; s++ {
			if results[s] == 0 {
				t.Errorf("no message had status %d: the schedules do not try it", s)
			}
		}
	}
}

// schedule runs one.
func schedule(t testing.TB, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	some := func(p float64) bool { return r.Float64() < p }
	cfg := simple()
	cfg.MTU = 256 + r.IntN(800)
	cfg.Slots = 1 + r.IntN(64)
	cfg.Budget = 4 + r.IntN(50)
	if some(0.4) {
		cfg.Key = &wire.Key{seed, 1}
	}
	if some(0.2) {
		cfg.MaxPeers = 2
	}
	w := newWorld(t, seed, 2+r.IntN(4), cfg)
	w.jitter = time.Duration(10+r.IntN(500)) * time.Microsecond
	if some(0.3) {
		w.forge = 0.1
	}
	if some(0.4) {
		w.failing = r.Float64() * 0.2
	}
	if some(0.1) {
		w.lose = 0.02
	}
	for _, n := range w.nodes {
		if some(0.3) {
			n.rooms = r.IntN(60000)
		}
		if some(0.2) {
			n.refuse = r.Float64() * 0.3
		}
		if some(0.3) {
			n.receives = 2 + r.IntN(10)
		}
		n.soon = some(0.5)
	}
	span := time.Duration(5+r.IntN(300)) * time.Millisecond
	at := func(f func()) { w.After(time.Duration(r.Int64N(int64(span))), f) }
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
			size := r.IntN(80)
			switch {
			case some(0.3):
				size = r.IntN(5000)
			case some(0.1):
				size = r.IntN(70000)
			}
			l := w.send(from, to.id, service, size)
			if some(0.1) {
				w.After(time.Duration(r.IntN(2000))*time.Microsecond, func() {
					from.do(l.life, func() {
						if l.status == 0 && !l.void {
							from.m.Cancel(l.handle)
							l.givenUp = true
						}
					})
				})
			}
		})
	}
	w.patient = cfg.MaxPeers == 0
	if some(0.3) {
		w.patient = false
		at(func() {
			n, back := pick(), uint64(0)
			if cfg.Key == nil && some(0.3) { // cookies need no clock
				back = uint64(time.Hour)
			}
			w.crash(n, back)
			n.pump()
		})
	}
	if some(0.3) { // its program stands still, or its device does
		w.patient = false
		at(func() {
			n := pick()
			for range 1 + r.IntN(2) {
				switch r.IntN(3) {
				case 0:
					n.silent = true
				case 1:
					n.gone = true
				default:
					n.asleep = true
				}
			}
			w.After(time.Duration(r.Int64N(int64(3*time.Second))), func() {
				n.silent, n.gone = false, false
				n.wake()
			})
		})
	}
	if some(0.2) { // it has no receives for a while
		at(func() {
			n := pick()
			took := n.receives
			n.receives -= took
			life := n.life
			w.After(time.Duration(r.Int64N(int64(time.Second))), func() {
				if n.life == life {
					n.receives += took
				}
			})
		})
	}
	if some(0.2) {
		at(func() {
			n := pick()
			w.patient = w.patient && cfg.Key == nil // greetings of the past may have met a predecessor
			n.offset += time.Duration(r.Int64N(int64(10*time.Hour))) - 5*time.Hour
			n.pump()
		})
	}
	w.Run(w.Now + span)
	w.forge, w.failing, w.lose = 0, 0, 0
	w.Run(w.Now + 60*time.Second)
	w.end()
	return w
}
