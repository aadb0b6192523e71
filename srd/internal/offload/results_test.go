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

// Each message has the result that the receiver says first, in whatever order the results come, and again.
func TestResults(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 6))
		s := newSolo(t, Config{Config: session.Config{PeerTimeout: time.Hour}})
		s.host.statuses = make(map[uint64]engine.Status)
		want := make(map[uint64]engine.Status)
		service := uint8(seed % wire.Services)
		base := uint32(0)
		for range 200 {
			s.credit(1 << 15)
			for range rng.IntN(8) {
				s.send(service, 1+rng.IntN(3*s.fragment), false)
			}
			for s.next(0) != nil {
				s.Completed(0, Landed)
			}
			if s.sent == 0 {
				continue
			}
			f := s.p.tx[service]
			r := wire.Response{Service: service, Floor: f.una}
			for seq := f.una; seq != f.nxt; seq++ {
				if rng.IntN(3) > 0 && want[uint64(seq)] == 0 {
					want[uint64(seq)] = []engine.Status{engine.Delivered, engine.Refused}[rng.IntN(2)]
				}
			}
			for want[uint64(base)] != 0 {
				base++
			}
			r.Base = base
			for i := range uint32(wire.Window) {
				if want[uint64(r.Base+i)] != 0 {
					r.Seen[i/64] |= 1 << (i % 64)
					r.NSeen = max(r.NSeen, uint8(i/64+1))
				}
				if want[uint64(r.Floor+i)] == engine.Refused {
					r.Refused[i/64] |= 1 << (i % 64)
					r.NRefused = max(r.NRefused, uint8(i/64+1))
				}
			}
			s.answer(r)
			require.Equal(t, want, s.host.statuses, "seed %d", seed)
			require.Equal(t, base, f.una)
			require.Equal(t, base != f.nxt, s.p.unsettled())
			require.Equal(t, base != f.nxt, f.open != nil, "a flow without messages keeps no window")
		}
		require.Greater(t, int(s.sent), 400)
		require.Zero(t, s.Stats.Bogus)
	}
}

// A message for which the receiver has no memory now comes again as a whole, before those behind it, when the receiver
// calls for it, or after a while. None begins meanwhile.
func TestMessageThatLacksMemory(t *testing.T) {
	for _, called := range []bool{true, false} {
		s := newSolo(t, Config{})
		s.credit(100)
		type piece struct {
			seq, index uint32
			cancel     bool
		}
		goes := func(want ...piece) {
			t.Helper()
			var got []piece
			for k := s.next(0); k != nil; k = s.next(0) {
				got = append(got, piece{k.Part.Seq, k.Part.Index, k.Part.Cancel})
				s.Completed(0, Landed)
			}
			require.Equal(t, want, got)
		}
		for range 3 {
			s.send(engine.Ordered, s.fragment+1, false)
		}
		goes(piece{seq: 0}, piece{seq: 0, index: 1}, piece{seq: 1}, piece{seq: 1, index: 1}, piece{seq: 2}, piece{seq: 2, index: 1})
		bits := [wire.RefusedWords]uint64{1<<1 | 1<<2}
		lacks := wire.Response{Service: engine.Ordered, Base: 1, Pressure: engine.NoMemory, NRefused: 1, Refused: bits}
		s.answer(lacks)
		require.Equal(t, 1, s.host.settled)
		s.send(engine.Ordered, 10, false)
		goes()
		first := s.Stamp()
		s.sleep(100 * time.Millisecond)
		goes()
		if called {
			lacks.Pressure, lacks.Floor, lacks.Refused[0] = 0, 1, bits[0]>>1
			s.answer(lacks)
		} else {
			s.sleep(engine.AskAgain - 100*time.Millisecond)
		}
		goes(piece{seq: 1}, piece{seq: 1, index: 1}, piece{seq: 2}, piece{seq: 2, index: 1}, piece{seq: 3})
		require.EqualValues(t, 4, s.Stats.Retransmitted)

		// An older response that comes late changes nothing.
		lacks.Pressure = engine.NoMemory
		if called {
			s.from(wire.Packet{HasResponse: true, Response: lacks, Stamp: first})
			s.send(engine.Ordered, 10, false)
			goes(piece{seq: 4})
		}
		s.answer(wire.Response{Service: engine.Ordered, Base: s.p.tx[engine.Ordered].nxt, Floor: 1})
		require.False(t, s.p.unsettled())
	}
}

// A message that may not be sent again ends when the receiver has no memory for it.
func TestNoRetransmitLacksMemory(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(100)
	s.send(engine.NoRetransmit, 10, false)
	require.NotNil(t, s.next(0))
	s.answer(wire.Response{Service: engine.NoRetransmit, Pressure: engine.NoMemory, NRefused: 1, Refused: [wire.RefusedWords]uint64{1}})
	require.Zero(t, s.host.settled)
	require.True(t, s.next(1).Part.Cancel)
	s.answer(wire.Response{Service: engine.NoRetransmit, Base: 1, NRefused: 1, Refused: [wire.RefusedWords]uint64{1}})
	require.Equal(t, engine.Retransmit, s.host.last.Status)
}

// Packets that the peer says it took count no more, by whichever word; earlier words change nothing.
func TestCreditWords(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(10)
	for range 10 {
		s.send(engine.Reliable, 10, false)
	}
	for range 10 {
		require.NotNil(t, s.next(0))
	}
	word := func(taken uint32, grant uint16) (underWay int) {
		s.from(wire.Packet{HasCredit: true, Credit: wire.Credit{Taken: taken, Grant: grant}})
		return s.p.underWay()
	}
	require.Equal(t, 10, s.p.underWay())
	require.Equal(t, 6, word(4, 20))
	require.Equal(t, 6, word(3, 99), "of before")
	require.EqualValues(t, 20, s.p.grant)
	require.Equal(t, 6, word(4, 30))
	require.EqualValues(t, 30, s.p.grant)
	s.p.posted -= 7 // as if they had not arrived
	require.Zero(t, word(8, 30), "they had")
	require.EqualValues(t, 8, s.p.posted)
}
