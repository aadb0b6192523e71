package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc/internal/wire"
)

// everywhere posts a request from each living initiator to each target.
func (w *world) everywhere() (jobs []*job) {
	for _, i := range w.inits {
		if i.dead || i.deaf {
			continue
		}
		for n := range i.core.peers {
			if p := i.core.peers[n]; p != nil {
				j := &job{on: i, to: p}
				jobs = append(jobs, j)
				i.post(p, j)
			}
		}
	}
	return jobs
}

// home is the address that a job's target was resolved by.
func (j *job) home() wire.ControlAddress { return j.on.peers[j.to].address.At }

// fits reports whether a target is the one that a job means.
func (j *job) fits(t *simTarget) bool {
	want := j.on.peers[j.to].address.Generation
	return want == 0 || want == t.core.Epoch
}

// program is a random run; it returns its world and what was wrong.
func program(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rng, services: map[uint16]*simTarget{}, sessions: map[uint64]bool{}, lease: []time.Duration{400 * time.Millisecond, 20 * time.Second}[rng.IntN(2)],
		loss: []float64{0, 0.1, 0.4}[rng.IntN(3)], dup: []float64{0, 0.3}[rng.IntN(2)], spread: []time.Duration{0, time.Millisecond, 20 * time.Millisecond}[rng.IntN(3)],
		faults: []float64{0, 0, 0.02}[rng.IntN(3)], unready: []float64{0, 0, 0.1}[rng.IntN(3)], counts: rng.IntN(2) == 0}
	var addrs []PeerAddress
	slots := 1 + rng.IntN(3)
	for range 1 + rng.IntN(6) {
		at := wire.ControlAddress{QPN: w.qpn(), GID: wire.GID{15: byte(1 + rng.IntN(3))}} // some are on one host
		t := w.target(at, at, slots)
		a := PeerAddress{At: at, Service: rng.IntN(2) == 0}
		if a.Service {
			w.services[uint16(at.QPN)] = t
		}
		if rng.IntN(4) == 0 {
			a.Generation = t.core.Epoch
		}
		addrs = append(addrs, a)
	}
	var jobs []*job
	killed := map[wire.ControlAddress]bool{}
	for range 1 + rng.IntN(5) {
		i := w.initiator(1+rng.IntN(3), 1+rng.IntN(8))
		for _, a := range addrs {
			i.resolve(a)
		}
	}
	const span = 300 * time.Millisecond
	within := func() time.Duration { return time.Duration(rng.Int64N(int64(span))) }
	for range 20 + rng.IntN(200) {
		i, at := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At
		j := &job{on: i}
		jobs = append(jobs, j)
		w.After(within(), func() { j.to = i.known[at]; i.post(j.to, j) })
	}
	for range rng.IntN(40) {
		i, at := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At
		w.After(within(), func() { i.remove(at) })
	}
	for range rng.IntN(40) {
		i, at := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At
		w.After(within(), func() {
			if !i.dead {
				i.core.Dismiss(i.known[at], w.Now)
				i.settle()
			}
		})
	}
	for range rng.IntN(20) {
		i, at, timeout := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At, time.Duration(rng.Int64N(int64(2*time.Second)))
		w.After(within(), func() { i.attach(i.known[at], timeout) })
	}
	for range rng.IntN(40) {
		i, at, k := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At, rng.IntN(8)
		w.After(within(), func() { i.cancel(i.known[at], k) })
	}
	for range rng.IntN(5) {
		i, at := w.inits[rng.IntN(len(w.inits))], addrs[rng.IntN(len(addrs))].At
		w.After(within(), func() {
			if !i.dead {
				i.core.Abort(i.known[at])
				i.settle()
			}
		})
	}
	for range rng.IntN(3) { // a target dies, and perhaps another one takes its address
		a := addrs[rng.IntN(len(addrs))]
		at := within()
		killed[a.At] = true
		w.After(at, func() { w.kill(a.At) })
		if rng.IntN(2) == 0 {
			w.After(at+time.Duration(rng.Int64N(int64(50*time.Millisecond))), func() {
				w.kill(a.At)
				if !a.Service {
					w.target(a.At, a.At, slots)
					return
				}
				w.services[uint16(a.At.QPN)] = w.target(wire.ControlAddress{QPN: w.qpn(), GID: a.At.GID}, a.At, slots)
			})
		}
	}
	var lame *simInitiator // dead, or deaf
	if len(w.inits) > 1 && rng.IntN(2) == 0 {
		lame = w.inits[0]
		dead := rng.IntN(2) == 0
		w.After(within(), func() { lame.dead, lame.deaf = dead, !dead })
	}
	w.Run(span)
	w.loss, w.unready = 0, 0
	w.Run(span + 5*time.Second)
	w.owned()
	w.Run(4*time.Second + max(w.lease+w.lease/2, 2*time.Second)) // all leases are over, which packets lengthen
	if w.faults > 0 {
		w.faults = 0
		w.Run(w.Now + 6*time.Second) // repaired, at last
	}
	var last []*job
	for range 2 { // the first may meet a session of a target that has died
		last = w.everywhere()
		jobs = append(jobs, last...)
		w.Run(w.Now + 3*time.Second)
	}
	if w.Err != nil {
		return w, w.Err
	}
	for n, j := range jobs {
		switch {
		case j.taken && j.executed > 0:
			return w, fmt.Errorf("request %d was taken back and carried out", n)
		case j.executed > 1:
			return w, fmt.Errorf("request %d was carried out %d times", n, j.executed)
		case j.executed == 1 && j.by.home != j.home():
			return w, fmt.Errorf("request %d went to the wrong target", n)
		case j.executed == 1 && !j.fits(j.by):
			return w, fmt.Errorf("request %d went to another generation of its target", n)
		case j.on == lame:
		case j.ended != 1:
			return w, fmt.Errorf("request %d of %d has %d completions", n, len(jobs), j.ended)
		case j.err == nil && j.executed == 0:
			return w, fmt.Errorf("request %d succeeded without being carried out", n)
		}
	}
	for _, j := range last {
		if t := w.alive(j.home()); t != nil && j.fits(t) && j.err != nil {
			return w, fmt.Errorf("a target that lives is not reached: %w", j.err)
		}
	}
	for _, i := range w.inits {
		for _, a := range i.joins {
			if !a.over && i != lame {
				return w, errors.New("somebody waits for a session that does not come")
			}
		}
	}
	// Dead initiators hold nothing; live ones at most what they have contexts for.
	for _, t := range w.targets {
		for k := range t.core.slots {
			if s := t.core.slots[k].session; s != nil && lame != nil && lame.dead && s.sender == lame.core.ID {
				return w, errors.New("a dead initiator still has a responder context")
			}
		}
		if len(t.core.sessions)+len(t.core.free) != slots {
			return w, fmt.Errorf("%d sessions and %d free responder contexts of %d", len(t.core.sessions), len(t.core.free), slots)
		}
	}
	return w, nil
}

// owned checks that each session at a target is one that its initiator knows of.
func (w *world) owned() {
	for _, t := range w.targets {
		for k := range t.core.slots {
			s := t.core.slots[k].session
			if s == nil {
				continue
			}
			known := false
			for _, i := range w.inits {
				known = known || i.core.ID == s.sender && (i.dead || i.deaf || i.knows(s.id))
			}
			if !known {
				w.Wrong("session %x has an initiator that does not know it", s.id)
			}
		}
	}
}

func (i *simInitiator) knows(id uint64) bool {
	for k := range i.core.Contexts {
		if x := &i.core.Contexts[k]; x.Session.ID == id || x.state == connecting {
			return true
		}
	}
	for _, p := range i.core.peers {
		if p != nil && p.kept.ID == id {
			return true
		}
	}
	return false
}

// seeds is how many random programs to run: few on an emulated machine, where
// they say nothing that they do not say elsewhere.
func seeds(all, short uint64) uint64 {
	switch {
	case lab.In():
		return 40
	case testing.Short():
		return short
	}
	return all
}

// TestSimulation runs random programs over a bad network against the model.
func TestSimulation(t *testing.T) {
	seeds := seeds(3000, 200)
	resumed, found, returned := 0, 0, 0
	for seed := range seeds {
		w, err := program(seed)
		require.NoError(t, err, "seed %d", seed)
		resumed += w.resumed
		found += w.found
		returned += w.returned
	}
	require.Greater(t, resumed, int(seeds), "sessions taken up again")
	require.Greater(t, found, int(seeds/20), "targets found at another place")
	require.Greater(t, returned, int(seeds/20), "requests that found no receive")
}

// TestSeedsRepeat exactly, event by event.
func TestSeedsRepeat(t *testing.T) {
	for seed := range uint64(20) {
		a, _ := program(seed)
		b, _ := program(seed)
		require.Equal(t, a.Trace, b.Trace, "seed %d", seed)
		require.Equal(t, a.Added, b.Added, "seed %d", seed)
	}
}
