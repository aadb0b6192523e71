package flow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

func newFlow(ring, messages, peerRing, peerMessages, buffer uint64) *Flow {
	return New(Config{Ring: ring, Messages: messages, PeerRing: peerRing, PeerMessages: peerMessages, Buffer: buffer})
}

// end is one side of a connection in memory: the wire keeps order, completions
// come when they like.
type end struct {
	*Flow
	mem      []byte
	wire     []uint32 // immediates on their way here
	signals  []uint64 // completions on their way here
	sentAll  bool
	received []byte
}

// What one side sends comes out at the other, whatever the sizes and the order
// of things; never does a message find no receive; and as long as there is
// something to do, somebody can do it.
func TestModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		size := func() uint64 { return wire.MinRing + uint64(r.IntN(3*wire.MinRing)) }
		msgs := func() uint64 { return wire.MinMessages + uint64(r.IntN(40)) }
		ring, count := [2]uint64{size(), size()}, [2]uint64{msgs(), msgs()}
		var ends [2]*end
		var data [2][]byte
		for i := range ends {
			ends[i] = &end{Flow: newFlow(ring[i], count[i], ring[1-i], count[1-i], size()), mem: make([]byte, ring[i])}
			data[i] = make([]byte, r.IntN(40_000))
			for j := range data[i] {
				data[i][j] = byte(r.Uint32())
			}
		}
		idle := 0
		for !(ends[0].over(ends[1]) && ends[1].over(ends[0])) {
			i := r.IntN(2)
			if ends[i].step(t, r, ends[1-i], data[i]) {
				idle = 0
			} else if idle++; idle > 2000 {
				t.Fatalf("seed %d: stuck: %+v %+v", seed, ends[0].Flow, ends[1].Flow)
			}
		}
		for i := range ends {
			require.True(t, bytes.Equal(data[1-i], ends[i].received), "seed %d", seed)
		}
	}
}

func (e *end) over(peer *end) bool {
	return e.sentAll && peer.fin && peer.Unread() == 0 && e.msgsDone == e.msgsSent
}

// step does one thing, and tells whether it could.
func (e *end) step(t *testing.T, r *rand.Rand, peer *end, data []byte) bool {
	switch r.IntN(4) {
	case 0: // write
		left := data[e.sent:]
		if e.sentAll {
			return false
		}
		if len(left) == 0 {
			id, signal := e.Send(0, true)
			require.True(t, signal)
			e.signals, e.sentAll = append(e.signals, id), true
			peer.wire = append(peer.wire, wire.Fin)
			break
		}
		n := min(e.Window(), e.Room(), uint64(1+r.IntN(len(left))))
		if n == 0 {
			return false
		}
		at := e.sent % e.PeerRing
		if e.sent%e.Buffer+n > e.Buffer {
			t.Fatal("over the end of the buffer")
		}
		copy(peer.mem[at:at+n], left[:n])
		if id, signal := e.Send(n, false); signal {
			e.signals = append(e.signals, id)
		}
		peer.wire = append(peer.wire, uint32(n))
		if e.msgsSent-e.msgsDone > e.PeerMessages {
			t.Fatal("more sends than the queue holds")
		}
	case 1: // a completion
		if len(e.signals) == 0 {
			return false
		}
		e.Completed(e.signals[0])
		e.signals = e.signals[1:]
	case 2: // a message
		if len(e.wire) > int(e.Messages)+SpareReceives {
			t.Fatal("a message found no receive")
		}
		if len(e.wire) == 0 {
			return false
		}
		imm := e.wire[0]
		e.wire = e.wire[1:]
		n := imm & wire.Length
		if imm&wire.Credit != 0 {
			n = 0
		}
		if err := e.Flow.Received(imm, n); err != nil {
			t.Fatal(err)
		}
	case 3: // read
		from, to := e.Readable()
		if from == to {
			return false
		}
		n := 1 + uint64(r.IntN(int(to-from)))
		e.received = append(e.received, e.mem[from:from+n]...)
		if imm, ok := e.Take(n); ok {
			peer.wire = append(peer.wire, imm)
		}
	}
	return true
}

// FuzzFlow: whatever a peer sends, the counts stay within the rings.
func FuzzFlow(f *testing.F) {
	f.Add([]byte{0, 0, 0, 16, 2, 0, 0, 8, 0, 0, 1, 0, 128, 64, 0, 1})
	f.Add([]byte{64, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newFlow(wire.MinRing, wire.MinMessages, wire.MinRing, wire.MinMessages, wire.MinRing)
		for len(in) >= 4 {
			imm := binary.BigEndian.Uint32(in)
			in = in[4:]
			switch imm >> 28 & 3 { // two bits that neither length nor credit needs decide what happens
			case 0:
				if n := min(s.Window(), s.Room(), uint64(imm&0xfff)); n > 0 {
					id, signal := s.Send(n, false)
					if signal {
						s.Completed(id)
					}
				}
			case 1:
				s.Take(min(s.Unread(), uint64(imm&0xfff)))
			default:
				n := imm & wire.Length & 0xffff
				if imm&wire.Credit != 0 {
					n = 0
				}
				if err := s.Received(imm&^(3<<28), n); err != nil && !errors.As(err, new(wire.Violation)) {
					t.Fatal(err)
				}
			}
			if s.Unread() > s.Ring || s.head-s.returned > s.Ring || s.credited > s.sent || s.msgsCredited > s.msgsSent ||
				s.Window() > s.PeerRing || s.Room() > s.Buffer || s.came-s.told > s.Messages {
				t.Fatalf("%+v", s)
			}
		}
	})
}
