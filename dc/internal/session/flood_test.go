package session

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// flood sends 10,000 packets a second for some seconds, each of which is forged,
// damaged, or heard in the network and said again. It counts those that a target's
// machine saw although it must not answer them, and the replays.
type flood struct {
	w                       *world
	target                  *simTarget
	heard                   [][wire.MessageLen]byte // what initiators said
	forged, damaged, replay int
	answers                 int // of the target to unauthenticated peers
}

func (f *flood) packet() {
	w := f.w
	var b [wire.MessageLen]byte
	m := wire.Message{Kind: wire.Kind(1 + w.rng.IntN(int(wire.Alive))), MTU: 3, Epoch: f.target.core.Epoch, Sender: w.rng.Uint64(), Key: w.rng.Uint64(),
		Session: w.rng.Uint64(), Context: w.rng.Uint32N(4), Attempt: w.rng.Uint32N(50), Peer: w.rng.Uint32N(4), QPN: 7, Wait: w.rng.Uint32(), From: wire.ControlAddress{QPN: 0xffff}}
	if i := w.inits[w.rng.IntN(len(w.inits))]; w.rng.IntN(2) == 0 {
		m.Sender = i.core.ID // as if it were known
	}
	switch {
	case w.rng.IntN(3) == 0 && len(f.heard) > 0:
		f.replay++
		b = f.heard[w.rng.IntN(len(f.heard))]
	case w.rng.IntN(2) == 0:
		f.damaged++
		m.Key = simKey
		m.Encode(b[:])
		b[w.rng.IntN(len(b))] ^= 1 << w.rng.IntN(8)
		if m.Decode(b[:]) {
			w.Wrong("a damaged message is taken")
		}
		return
	default:
		f.forged++
		m.Encode(b[:])
		for _, i := range w.inits {
			x := m
			x.Sender = i.core.ID
			before := i.core.Stats.Malformed
			i.core.Received(&x, w.Now)
			if i.core.Stats.Malformed != before+1 {
				w.Wrong("an initiator listens to an unauthenticated peer")
			}
			i.settle()
		}
	}
	if !m.Decode(b[:]) {
		w.Wrong("a whole message is not taken")
	}
	f.target.core.Received(&m, w.Now)
	f.target.settle()
}

// TestFlood: unauthenticated peers and replays of what was overheard, 10,000 packets a second,
// get no reply, change nothing and cost no memory. Initiators with the key are served
// meanwhile.
func TestFlood(t *testing.T) {
	const rate = 10_000
	span := 10 * time.Second
	if testing.Short() {
		span = 3 * time.Second
	}
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), services: map[uint16]*simTarget{}, sessions: map[uint64]bool{}, lease: 20 * time.Second, spread: time.Millisecond}
	at := wire.ControlAddress{QPN: w.qpn()}
	target := w.target(at, at, 2)
	f := &flood{w: w, target: target}
	w.spy = func(to wire.ControlAddress, b [wire.MessageLen]byte) {
		switch {
		case to == at:
			f.heard = append(f.heard, b)
		case to.QPN == 0xffff:
			f.answers++
		}
	}
	for range 3 {
		w.initiator(2, 4).resolve(PeerAddress{At: at})
	}
	var jobs []*job
	for k := range int(span / (2 * time.Millisecond)) {
		i := w.inits[k%len(w.inits)]
		j := &job{on: i, to: i.known[at]}
		jobs = append(jobs, j)
		w.After(time.Duration(k)*2*time.Millisecond, func() { i.post(j.to, j) })
	}
	for k := range rate * int(span/time.Second) {
		w.After(time.Duration(k)*time.Second/rate, f.packet)
	}
	begin := time.Now()
	w.Run(span + time.Second)
	took := time.Since(begin)
	require.NoError(t, w.Err)
	for n, j := range jobs {
		require.Equal(t, 1, j.ended, "request %d", n)
		require.NoError(t, j.err, "request %d", n)
		require.Equal(t, 1, j.executed, "request %d", n)
	}
	t.Logf("%d forged, %d damaged, %d replayed in %v of %v: %+v", f.forged, f.damaged, f.replay, took, span, target.core.Stats)
	require.Zero(t, f.answers)
	require.EqualValues(t, f.forged, target.core.Stats.Refused)
	require.LessOrEqual(t, len(target.core.sessions), 2)
	require.LessOrEqual(t, len(target.core.contexts), 2)
	require.LessOrEqual(t, len(target.core.waiters), 3)
	require.LessOrEqual(t, len(target.core.ended.ended), max(64, 2*2*3), "one for each context of an initiator")
}
