package offload

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// What arrived is answered after AckDelay; at once if the sender asks for it, if a quarter of its credit is used, or if
// there are enough results. There is one answer.
func TestAnswers(t *testing.T) {
	s := newSolo(t, Config{Config: session.Config{Budget: 40}})
	seq := uint32(0)
	message := func(now bool) {
		s.part(wire.Part{Seq: seq, Total: 10}, now)
		seq++
	}
	answer := func(response bool) {
		t.Helper()
		before := s.Stats.Responses
		k := s.next(0)
		require.NotNil(t, k)
		require.Equal(t, wire.Credit{Taken: s.p.arrived, Grant: 40}, k.Credit)
		require.Equal(t, response, k.HasResponse)
		if response {
			require.Equal(t, seq, k.Response.Base)
		}
		require.Nil(t, s.next(0))
		s.sleep(2 * s.cfg.AckDelay)
		require.Nil(t, s.next(0))
		require.Equal(t, before+1, s.Stats.Responses)
	}
	message(false)
	answer(true) // it has little credit at first
	message(true)
	answer(true)
	s.host.full = true // a refusal goes at once
	message(false)
	answer(true)
	s.host.full = false
	for range 2 { // the first one counts
		message(false)
		require.Nil(t, s.next(0))
		s.sleep(s.cfg.AckDelay / 2)
	}
	answer(true)
	message(false)
	s.sleep(s.cfg.AckDelay - time.Microsecond)
	require.Nil(t, s.next(0))
	s.sleep(time.Microsecond)
	answer(true)
	for i := range uint32(10) { // pieces have no result
		require.Nil(t, s.next(0))
		s.part(wire.Part{Seq: seq, Index: i, Total: 2000}, false)
	}
	k := s.next(0)
	require.NotNil(t, k)
	require.False(t, k.HasResponse)
	s.p.granted = 400
	for i := range uint32(enough) {
		require.Nil(t, s.next(0))
		s.part(wire.Part{Seq: seq + 1 + i, Total: 10}, false)
	}
	require.True(t, s.next(0).HasResponse)
}

// The budget is shared by those that send. What one was told may come for as long as a sender counts; only then
// others have it.
func TestShareOfTheBudget(t *testing.T) {
	s := newSolo(t, Config{Config: session.Config{Budget: 48, First: 4}})
	p, q := s.p, s.join(2)
	require.EqualValues(t, 4, s.share(p), "it sends nothing")
	s.enter(p)
	require.EqualValues(t, 48, s.share(p))
	s.enter(q)
	require.Equal(t, 52, s.coming)
	require.EqualValues(t, 1, s.share(q), "all is given")
	require.EqualValues(t, 24, s.share(p))
	hear := func(d time.Duration) {
		s.sleep(d)
		s.Hears(&p.Peer)
		s.Hears(&q.Peer)
	}
	hear(session.SenderAge)
	require.EqualValues(t, 24, s.share(p))
	require.EqualValues(t, 1, s.share(q))
	require.Equal(t, 52, s.coming)
	hear(1)
	require.EqualValues(t, 24, s.share(p))
	require.Equal(t, 28, s.coming)
	require.EqualValues(t, 24, s.share(q))
	require.Equal(t, 48, s.coming)

	// It sends what it may, and has as much again.
	s.part(wire.Part{Total: 10}, false)
	require.Equal(t, 47, s.coming)
	require.EqualValues(t, 24, s.share(p))
	require.Equal(t, 48, s.coming)

	// The other one stops.
	s.sleep(session.SenderAge + 1)
	s.Hears(&p.Peer)
	require.EqualValues(t, 48, s.share(p))
	require.Equal(t, 48, s.coming)
	require.False(t, q.Sender)
}

// received is what a receiver is to know of a flow, kept in the simplest way.
type received struct {
	service   uint8
	floor     uint32
	decided   map[uint32]bool            // whether each message was taken
	pieces    map[uint32]map[uint32]bool // of those that are not decided
	delivered int
}

const pieceLen = 100

// pieces returns how many pieces a message has.
func piecesOf(seq uint32) uint32 { return []uint32{1, 1, 3}[seq%3] }

func (r *received) base() uint32 {
	base := r.floor
	for {
		if _, ok := r.decided[base]; !ok {
			return base
		}
		base++
	}
}

// whole decides messages that are there, an ordered one when all before it are decided.
func (r *received) whole() {
	for again := true; again; {
		again = false
		for seq, has := range r.pieces {
			if uint32(len(has)) == piecesOf(seq) && (r.service != engine.Ordered || seq == r.base()) {
				r.decide(seq, true)
				again = true
			}
		}
	}
}

func (r *received) decide(seq uint32, taken bool) {
	r.decided[seq] = taken
	delete(r.pieces, seq)
	if taken {
		r.delivered++
	}
}

func (r *received) part(seq, index uint32, cancel, full bool) {
	if _, ok := r.decided[seq]; ok || seq < r.floor {
		return
	}
	early := r.service == engine.Ordered && seq != r.base()
	switch has := r.pieces[seq]; {
	case cancel || has == nil && full:
		r.decide(seq, false)
	case has == nil && piecesOf(seq) == 1 && !early:
		r.decide(seq, true)
	case has == nil:
		r.pieces[seq] = map[uint32]bool{index: true}
	default:
		has[index] = true
	}
	r.whole()
}

// Whatever comes of a flow, in any order and again, the receiver delivers each message once, ordered ones in
// their order, tells the sender of each whether it was taken, and keeps memory for those that are not all there.
func TestFlowAgreesWithAModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := newSolo(t, Config{Config: session.Config{PeerTimeout: time.Hour}})
		r := &received{service: uint8(seed % wire.Services), decided: map[uint32]bool{}, pieces: map[uint32]map[uint32]bool{}}
		for range 400 {
			if rng.IntN(6) == 0 { // the sender gave some up, perhaps
				r.floor += rng.Uint32N(5)
				for seq := range r.pieces {
					if seq < r.floor {
						delete(r.pieces, seq)
					}
				}
				r.whole()
			}
			seq := r.floor + rng.Uint32N([]uint32{10, 100, wire.Window}[rng.IntN(3)])
			k := wire.Part{Service: r.service, Seq: seq, Floor: r.floor, Total: piecesOf(seq) * pieceLen, Cancel: rng.IntN(12) == 0}
			k.Index = rng.Uint32N(piecesOf(seq))
			s.host.full = rng.IntN(8) == 0 && (r.service != engine.Ordered || seq != r.base())
			r.part(seq, k.Index, k.Cancel, s.host.full)
			s.part(k, true)

			answer := s.next(0)
			require.NotNil(t, answer)
			if answer.HasResponse {
				a := &answer.Response
				require.Equal(t, []uint32{uint32(r.service), r.base(), r.floor}, []uint32{uint32(a.Service), a.Base, a.Floor}, "seed %d", seed)
				for i := range uint32(wire.Window) {
					_, decided := r.decided[r.base()+i]
					require.Equal(t, decided, bit(a.Seen[:a.NSeen], i), "seed %d: %d", seed, r.base()+i)
					taken, decided := r.decided[r.floor+i]
					require.Equal(t, decided && !taken, bit(a.Refused[:a.NRefused], i), "seed %d: refused %d", seed, r.floor+i)
				}
			}
			require.Equal(t, r.delivered, s.host.delivered, "seed %d", seed)
			out := 0
			for seq := range r.pieces {
				out += int(piecesOf(seq)) * pieceLen
			}
			require.Equal(t, out, s.host.out, "seed %d", seed)
		}
	}
}
