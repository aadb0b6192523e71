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

// end is one side of a connection in memory. Its device carries out WRITEs in order,
// when it likes, from the buffer as it is then; completions come later still.
type end struct {
	*Flow
	mem      []byte // the ring
	buf      []byte
	posted   []write  // that the device has not carried out
	wire     []uint32 // immediates on their way here
	signals  []uint64 // completions on their way here
	sentAll  bool
	received []byte
	weights  [5]int // of what it does
	most     int    // bytes of a write
}

type write struct {
	from, to, n uint64
	imm         uint32
	id          uint64
	signal      bool
}

// What one side sends comes out at the other, whatever the sizes and the order
// of things; never does a message find no receive; and as long as there is
// something to do, one of the sides can do it.
func TestModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		size := func() uint64 { return wire.MinRing + uint64(r.IntN(3*wire.MinRing)) }
		msgs := func() uint64 { return wire.MinMessages + uint64(r.IntN(40)) }
		ring, count := [2]uint64{size(), size()}, [2]uint64{msgs(), msgs()}
		var ends [2]*end
		var data [2][]byte
		for i := range ends {
			buffer := size()
			e := &end{Flow: newFlow(ring[i], count[i], ring[1-i], count[1-i], buffer), mem: make([]byte, ring[i]), buf: make([]byte, buffer)}
			e.most = 1 << r.IntN(14)
			for k := range e.weights {
				e.weights[k] = 1 + r.IntN(1+r.IntN(12)) // some are slow readers, some devices lag
			}
			ends[i] = e
			data[i] = make([]byte, r.IntN(min(40_000, 1500*e.most)))
			for j := range data[i] {
				data[i][j] = byte(r.Uint32())
			}
		}
		idle := 0
		for !(ends[0].over(ends[1]) && ends[1].over(ends[0])) {
			i := r.IntN(2)
			if ends[i].step(t, r, ends[1-i], data[i]) {
				idle = 0
			} else if idle++; idle > 5000 {
				t.Fatalf("seed %d: stuck: %+v %+v", seed, ends[0].Flow, ends[1].Flow)
			}
			ends[i].agrees(t, seed, ends[1-i])
		}
		for i := range ends {
			require.True(t, bytes.Equal(data[1-i], ends[i].received), "seed %d", seed)
		}
	}
}

func (e *end) over(peer *end) bool {
	return e.sentAll && peer.fin && peer.Unread() == 0 && e.msgsDone == e.msgsSent
}

// agrees: what one side has given back is what the other one has, or is about to get.
func (e *end) agrees(t *testing.T, seed uint64, peer *end) {
	bytes, msgs := peer.credited, peer.msgsCredited
	for _, imm := range peer.wire {
		if imm&wire.Credit != 0 {
			bytes += uint64(imm&wire.MaxCreditUnits) * wire.CreditUnit
			msgs += uint64(imm >> 22 & wire.MaxCreditMessages)
		}
	}
	if e.returned != bytes || e.told != msgs {
		t.Fatalf("seed %d: %d bytes and %d messages given back, %d and %d known", seed, e.returned, e.told, bytes, msgs)
	}
}

// step does one thing, and reports whether it could.
func (e *end) step(t *testing.T, r *rand.Rand, peer *end, data []byte) bool {
	what, at := 0, r.IntN(e.weights[0]+e.weights[1]+e.weights[2]+e.weights[3]+e.weights[4])
	for at >= e.weights[what] {
		at -= e.weights[what]
		what++
	}
	switch what {
	case 0: // write
		left := data[e.sent:]
		if e.sentAll {
			return false
		}
		w := write{n: uint64(len(left)), imm: wire.Fin}
		if w.n > 0 {
			if w.n = min(e.Window(), e.Room(), uint64(1+r.IntN(min(len(left), e.most)))); w.n == 0 {
				return false
			}
			w.imm = uint32(w.n)
		}
		w.from, w.to = e.Next()
		if w.from+w.n > e.Buffer || w.to+w.n > e.PeerRing {
			t.Fatal("over the end of buffer or ring")
		}
		copy(e.buf[w.from:], left[:w.n])
		last := w.imm == wire.Fin
		w.id, w.signal = e.Send(w.n, last)
		require.True(t, w.signal || !last)
		e.sentAll = last
		e.posted = append(e.posted, w)
		if e.msgsSent-e.msgsDone > e.PeerMessages {
			t.Fatal("more sends than the queue holds")
		}
	case 1: // the device
		if len(e.posted) == 0 {
			return false
		}
		w := e.posted[0]
		e.posted = e.posted[1:]
		copy(peer.mem[w.to:], e.buf[w.from:w.from+w.n])
		peer.wire = append(peer.wire, w.imm)
		if w.signal {
			e.signals = append(e.signals, w.id)
		}
	case 2: // a completion
		if len(e.signals) == 0 {
			return false
		}
		e.Completed(e.signals[0])
		e.signals = e.signals[1:]
	case 3: // a message
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
	case 4: // read
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

// A peer may go as far as it was told, and no further.
func TestViolations(t *testing.T) {
	const ring, messages = wire.MinRing, wire.MinMessages
	credit := func(bytes, msgs uint32) uint32 { return wire.Credit | msgs<<22 | bytes/wire.CreditUnit }
	for name, c := range map[string]struct {
		before func(f *Flow)
		imm, n uint32
		ok     bool
	}{
		"a full ring":                   {imm: ring, n: ring, ok: true},
		"more than the ring":            {imm: ring + 1, n: ring + 1},
		"more than was written":         {imm: 9, n: 8},
		"less than was written":         {imm: 8, n: 9},
		"the end with bytes":            {imm: wire.Fin | 8, n: 8, ok: true},
		"after the end":                 {before: func(f *Flow) { f.Received(wire.Fin, 0) }, imm: 8, n: 8},
		"the end twice":                 {before: func(f *Flow) { f.Received(wire.Fin, 0) }, imm: wire.Fin},
		"taken, but not given back":     {before: func(f *Flow) { f.Received(ring, ring); f.Take(ring / 8) }, imm: 64, n: 64},
		"given back":                    {before: func(f *Flow) { f.Received(ring, ring); f.Take(ring / 2) }, imm: ring / 2, n: ring / 2, ok: true},
		"as many messages as there are": {before: receivedTiny(messages - 1), imm: 1, n: 1, ok: true},
		"one message more":              {before: receivedTiny(messages), imm: 1, n: 1},
		"credit":                        {before: func(f *Flow) { f.Send(128, false) }, imm: credit(128, 1), ok: true},
		"credit after the end":          {before: func(f *Flow) { f.Send(128, false); f.Received(wire.Fin, 0) }, imm: credit(128, 1), ok: true},
		"credit of too many bytes":      {before: func(f *Flow) { f.Send(128, false) }, imm: credit(192, 1)},
		"credit of too many messages":   {before: func(f *Flow) { f.Send(128, false) }, imm: credit(128, 2)},
		"credit twice":                  {before: func(f *Flow) { f.Send(128, false); f.Received(credit(128, 1), 0) }, imm: credit(64, 0)},
		"credit with data":              {before: func(f *Flow) { f.Send(128, false) }, imm: credit(128, 1), n: 8},
	} {
		f := newFlow(ring, messages, ring, messages, ring)
		if c.before != nil {
			c.before(f)
		}
		if err := f.Received(c.imm, c.n); c.ok {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(wire.Violation), name)
		}
	}
}

// However many messages are under way, there is a place for the last one.
func TestPlaceForTheEnd(t *testing.T) {
	a, b := newFlow(wire.MinRing, 8, wire.MinRing, 8, wire.MinRing), newFlow(wire.MinRing, 8, wire.MinRing, 8, wire.MinRing)
	for a.Window() > 0 && a.Room() > 0 {
		id, _ := a.Send(1, false)
		a.Completed(id)
		require.NoError(t, b.Received(1, 1))
	}
	a.Send(0, true)
	require.NoError(t, b.Received(wire.Fin, 0))
	require.EqualValues(t, 8, a.msgsSent)
}

func receivedTiny(n int) func(f *Flow) {
	return func(f *Flow) {
		for range n {
			f.Received(1, 1)
		}
	}
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
