package dci

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func hardwareProgram(seed uint64) error {
	_, err := hardwareRun(seed)
	return err
}

func traceOf(seed uint64) uint64 {
	w, _ := hardwareRun(seed)
	return w.Trace
}

func hardwareRun(seed uint64) (*world, error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	w := &world{rng: rng, loss: []float64{0, 0.02, 0.3}[rng.IntN(3)]}
	streams := []int{1, 1, 2, 8}[rng.IntN(4)]
	depth := 1 + rng.IntN(12)
	v := &hwDevice{w: w, core: New(1+rng.IntN(4), streams, depth, 1+rng.IntN(6)), errored: 1 + rng.IntN(streams), mortal: rng.IntN(4) == 0,
		peers: map[*Peer]*hwPeer{}}
	for range v.core.DCIs {
		v.dcis = append(v.dcis, hwDCI{streams: make([]hwStream, streams), ring: make([]*hwJob, depth)})
	}
	var peers []*hwPeer
	for range 1 + rng.IntN(12) {
		p := &hwPeer{dead: rng.IntN(6) == 0}
		peers = append(peers, p)
		v.peers[&p.Peer] = p
	}
	for range 20 + rng.IntN(300) {
		p := peers[rng.IntN(len(peers))]
		w.After(time.Duration(rng.Int64N(int64(20*time.Millisecond))), func() { v.post(p) })
	}
	for range rng.IntN(60) {
		p, k := peers[rng.IntN(len(peers))], rng.IntN(8)
		w.After(time.Duration(rng.Int64N(int64(20*time.Millisecond))), func() { v.cancel(p, k) })
	}
	if rng.IntN(3) == 0 {
		for range rng.IntN(10) {
			p := peers[rng.IntN(len(peers))]
			w.After(time.Duration(rng.Int64N(int64(20*time.Millisecond))), func() { v.abort(p) })
		}
	}
	w.Run(time.Minute)
	if w.Err != nil {
		return w, w.Err
	}
	for n, j := range v.all {
		switch {
		case j.ended != 1:
			return w, fmt.Errorf("request %d of %d has %d completions", n, len(v.all), j.ended)
		case j.taken && j.executed > 0:
			return w, fmt.Errorf("request %d was taken back and carried out", n)
		case j.executed > 1:
			return w, fmt.Errorf("request %d was carried out %d times", n, j.executed)
		case j.err == nil && j.executed != 1:
			return w, fmt.Errorf("request %d succeeded and was carried out %d times", n, j.executed)
		case j.err != nil && !j.taken && w.loss == 0 && !v.mortal && !v.aborts && !anyDead(peers):
			return w, fmt.Errorf("request %d: %w", n, j.err)
		}
	}
	for _, p := range peers {
		if p.dci != nil || p.outstanding != 0 || p.pending != 0 {
			return w, errors.New("a peer without requests has a DCI")
		}
	}
	if v.core.lined != 0 {
		return w, fmt.Errorf("%d peers are counted in line", v.core.lined)
	}
	lost := 0
	for i := range v.core.DCIs {
		d := &v.core.DCIs[i]
		switch {
		case d.state == lostDCI:
			lost++
		case d.state != ready || d.room() != depth || d.load() != 0 || d.peers != 0 || len(d.waiting) != 0:
			return w, fmt.Errorf("DCI %d is left in state %d, room %d of %d, load %d, %d peers", i, d.state, d.room(), depth, d.load(), d.peers)
		}
		if x := &v.dcis[i]; d.state == ready && x.dead {
			return w, fmt.Errorf("DCI %d is in error, and nobody knows", i)
		}
		for s, st := range d.streams {
			if d.state == ready && len(d.streams) > 1 && v.dcis[i].streams[s].bad {
				return w, fmt.Errorf("stream %d of DCI %d is in error, and nobody knows", s, i)
			}
			if d.state == ready && (st != stream{}) {
				return w, fmt.Errorf("stream %d of DCI %d is left as %+v", s, i, st)
			}
		}
	}
	if lost > 0 && !v.mortal {
		return w, errors.New("a DCI is lost")
	}
	return w, nil
}

func anyDead(peers []*hwPeer) bool {
	for _, p := range peers {
		if p.dead {
			return true
		}
	}
	return false
}

// TestHardwareProtocol runs random programs against the model of the device.
func TestHardwareProtocol(t *testing.T) {
	for seed := range seeds(4000, 1000) {
		require.NoError(t, hardwareProgram(seed), "seed %d", seed)
	}
}
