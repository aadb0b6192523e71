package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStreamHello(t *testing.T) {
	h := streamHello{ring: Region{Addr: 1 << 40, Length: 1 << 20, RKey: 0xabcdef}, messages: 128}
	b := h.encode()
	require.Len(t, b, helloLen)
	require.LessOrEqual(t, len(b), MaxRequestData)
	got, err := decodeHello(append(b, make([]byte, MaxAcceptData-helloLen)...))
	require.NoError(t, err)
	require.Equal(t, h, got)
	for _, i := range []int{0, 4, 5, 6, 8} {
		bad := bytes.Clone(b)
		bad[i] ^= 0xff
		_, err := decodeHello(bad)
		require.ErrorIs(t, err, ErrMessage, "byte %d", i)
	}
	_, err = decodeHello(nil)
	require.ErrorIs(t, err, ErrMessage)
	_, err = decodeHello(append(b, 0, 0, 1))
	require.ErrorIs(t, err, ErrMessage)
}

func FuzzStreamHello(f *testing.F) {
	h := streamHello{ring: Region{Addr: 1 << 40, Length: 1 << 20, RKey: 7}, messages: 128}
	f.Add(h.encode())
	f.Add(append(h.encode(), make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		require.Equal(t, b[:helloLen], h.encode())
	})
}

func newFlow(ring, messages, peerRing, peerMessages, buffer uint64) *streamFlow {
	return &streamFlow{ring: ring, messages: messages, peerRing: peerRing, peerMessages: peerMessages, buffer: buffer}
}

// end is one side of a connection in memory: the wire keeps order, completions
// come when they like.
type end struct {
	*streamFlow
	mem      []byte
	wire     []uint32 // immediates on their way here
	signals  []uint64 // completions on their way here
	sentAll  bool
	received []byte
}

// What one side sends comes out at the other, whatever the sizes and the order
// of things; never does a message find no receive; and as long as there is
// something to do, somebody can do it.
func TestStreamFlowModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		size := func() uint64 { return minRing + uint64(r.IntN(3*minRing)) }
		msgs := func() uint64 { return minMessages + uint64(r.IntN(40)) }
		ring, count := [2]uint64{size(), size()}, [2]uint64{msgs(), msgs()}
		var ends [2]*end
		var data [2][]byte
		for i := range ends {
			ends[i] = &end{streamFlow: newFlow(ring[i], count[i], ring[1-i], count[1-i], size()), mem: make([]byte, ring[i])}
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
				t.Fatalf("seed %d: stuck: %+v %+v", seed, ends[0].streamFlow, ends[1].streamFlow)
			}
		}
		for i := range ends {
			require.True(t, bytes.Equal(data[1-i], ends[i].received), "seed %d", seed)
		}
	}
}

func (e *end) over(peer *end) bool {
	return e.sentAll && peer.fin && peer.unread() == 0 && e.msgsDone == e.msgsSent
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
			id, signal := e.send(0, true)
			require.True(t, signal)
			e.signals, e.sentAll = append(e.signals, id), true
			peer.wire = append(peer.wire, immFin)
			break
		}
		n := min(e.window(), e.room(), uint64(1+r.IntN(len(left))))
		if n == 0 {
			return false
		}
		at := e.sent % e.peerRing
		if e.sent%e.buffer+n > e.buffer {
			t.Fatal("over the end of the buffer")
		}
		copy(peer.mem[at:at+n], left[:n])
		if id, signal := e.send(n, false); signal {
			e.signals = append(e.signals, id)
		}
		peer.wire = append(peer.wire, uint32(n))
		if e.msgsSent-e.msgsDone > e.peerMessages {
			t.Fatal("more sends than the queue holds")
		}
	case 1: // a completion
		if len(e.signals) == 0 {
			return false
		}
		e.completed(e.signals[0])
		e.signals = e.signals[1:]
	case 2: // a message
		if len(e.wire) > int(e.messages)+spareReceives {
			t.Fatal("a message found no receive")
		}
		if len(e.wire) == 0 {
			return false
		}
		imm := e.wire[0]
		e.wire = e.wire[1:]
		n := imm & immLength
		if imm&immCredit != 0 {
			n = 0
		}
		if err := e.streamFlow.received(imm, n); err != nil {
			t.Fatal(err)
		}
	case 3: // read
		from, to := e.readable()
		if from == to {
			return false
		}
		n := 1 + uint64(r.IntN(int(to-from)))
		e.received = append(e.received, e.mem[from:from+n]...)
		if imm, ok := e.take(n); ok {
			peer.wire = append(peer.wire, imm)
		}
	}
	return true
}

// FuzzStreamFlow: whatever a peer sends, the counts stay within the rings.
func FuzzStreamFlow(f *testing.F) {
	f.Add([]byte{0, 0, 0, 16, 2, 0, 0, 8, 0, 0, 1, 0, 128, 64, 0, 1})
	f.Add([]byte{64, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newFlow(minRing, minMessages, minRing, minMessages, minRing)
		for len(in) >= 4 {
			imm := binary.BigEndian.Uint32(in)
			in = in[4:]
			switch imm >> 28 & 3 { // two bits that neither length nor credit needs decide what happens
			case 0:
				if n := min(s.window(), s.room(), uint64(imm&0xfff)); n > 0 {
					id, signal := s.send(n, false)
					if signal {
						s.completed(id)
					}
				}
			case 1:
				s.take(min(s.unread(), uint64(imm&0xfff)))
			default:
				n := imm & immLength & 0xffff
				if imm&immCredit != 0 {
					n = 0
				}
				if err := s.received(imm&^(3<<28), n); err != nil && !errors.Is(err, ErrMessage) {
					t.Fatal(err)
				}
			}
			if s.unread() > s.ring || s.head-s.returned > s.ring || s.credited > s.sent || s.msgsCredited > s.msgsSent ||
				s.window() > s.peerRing || s.room() > s.buffer || s.came-s.told > s.messages {
				t.Fatalf("%+v", s)
			}
		}
	})
}
