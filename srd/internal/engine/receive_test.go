package engine

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// feeder hands a node packets of a peer, one by one.
type feeder struct {
	t       *testing.T
	n       *node
	p       *peer
	dropped int // memory of messages
	got     []Delivery
	base    uint32
	full    bool
	soon    bool
}

// feed returns a feeder, with a session and a flow with base as its next number.
func feed(t *testing.T, base uint32) *feeder {
	w := settledPair(t, nil)
	f := &feeder{t: t, n: w.nodes[1], p: w.nodes[1].e.peers[0], base: base}
	f.n.e.cfg.Host = f
	f.n.e.dropReceived(f.p)
	return f
}

func (f *feeder) Room(size int) []byte {
	if f.full {
		return nil
	}
	return make([]byte, size)
}

func (f *feeder) Deliver(d *Delivery, owned bool) bool {
	if f.full {
		return false
	}
	d.Bytes = bytes.Clone(d.Bytes)
	f.got = append(f.got, *d)
	return true
}

// refused hands in a packet for which there is no memory.
func (f *feeder) refused(p wire.Part) *wire.Response {
	f.full = true
	defer func() { f.full = false }()
	return f.part(p, true)
}

func (f *feeder) Soon(int) bool                   { return f.soon }
func (f *feeder) Drop([]byte)                     { f.dropped++ }
func (f *feeder) Settled(*Result)                 {}
func (f *feeder) PartSettled(uint64, int, Status) {}
func (f *feeder) Pressure() uint8                 { return 77 }

// part hands in a packet; Seq and Floor count from base. It returns the response, if one
// is sent at once.
func (f *feeder) part(p wire.Part, now bool) *wire.Response {
	p.Seq, p.Floor = p.Seq+f.base, p.Floor+f.base
	if p.Fragment == 0 {
		p.Fragment = 100
	}
	k := wire.Packet{Type: wire.Flow, Token: f.p.Local, VTag: f.p.Theirs, RespondNow: now, HasPart: true, Part: p}
	b := make([]byte, wire.MaxHeaders)
	b = append(b[:k.Encode(b)], make([]byte, p.Length())...)
	f.n.e.Receive(source(addrOf(0)), b)
	for _, a := range answers(f.n) {
		if a.HasResponse && a.Response.Service == p.Service {
			return &a.Response
		}
	}
	return nil
}

func bit(w []uint64, i uint32) bool { return i < uint32(64*len(w)) && w[i/64]>>(i%64)&1 != 0 }

// says returns the status of a number in a response.
func (f *feeder) says(r *wire.Response, seq uint32) Status {
	f.t.Helper()
	require.NotNil(f.t, r)
	seq += f.base
	i := seq - r.Floor
	switch {
	case int32(r.Base-seq) <= 0 && !bit(r.Seen[:r.NSeen], seq-r.Base):
		return 0
	case bit(r.Refused[:r.NRefused], i):
		return Refused
	}
	return Delivered
}

// The last packet of a message that is waited for asks for a response at once. If it overtakes others, the one
// that makes the message whole has a response at once, too.
func TestResponseWhenTheMessageIsWhole(t *testing.T) {
	for _, now := range []bool{true, false} {
		f := feed(t, 7)
		parts := func(index uint32, now bool) *wire.Response {
			return f.part(wire.Part{Seq: index, Index: index, Total: 250}, now)
		}
		require.Equal(t, now, parts(2, now) != nil)
		require.Nil(t, parts(1, false))
		r := parts(0, false)
		require.Len(t, f.got, 1)
		require.Equal(t, now, r != nil)
		if now {
			require.Equal(t, f.base+3, r.Base)
		}
	}
}

// A refusal is told until the sender says that it knows: what is forgotten would count
// as delivered.
func TestRefusalsAreKept(t *testing.T) {
	f := feed(t, 1<<32-3)
	f.part(wire.Part{Seq: 0}, true)
	f.refused(wire.Part{Seq: 2})
	f.refused(wire.Part{Seq: 3})
	r := f.part(wire.Part{Seq: 4, Floor: 1}, true)
	for i, want := range []Status{Delivered, 0, Refused, Refused, Delivered, 0} {
		require.Equal(t, want, f.says(r, uint32(i)), "packet %d", i)
	}
	r = f.part(wire.Part{Seq: 1, Floor: 1}, true)
	require.Equal(t, Refused, f.says(r, 2))
	require.Equal(t, Refused, f.says(r, 3))
	r = f.part(wire.Part{Seq: 5, Floor: 4}, true)
	require.Zero(t, r.NRefused)
	r = f.part(wire.Part{Seq: 258, Floor: 4}, true)
	require.Equal(t, Delivered, f.says(r, 258))
	require.Zero(t, r.NRefused)
	require.Nil(t, f.p.rx[Reliable].refused)
	require.Len(t, f.got, 5)
	require.EqualValues(t, 77, r.Pressure)
}

// A message for which there is no memory now and may be soon is not refused: its packet counts
// as lost. A message in its turn is refused, if others wait behind it that have the memory.
func TestMemoryIsSoonThere(t *testing.T) {
	for _, service := range []uint8{Reliable, Ordered} {
		for _, total := range []uint32{0, 350} {
			f := feed(t, 5)
			f.soon = true
			if service == Ordered {
				last := wire.Count(total, 100)
				f.part(wire.Part{Service: service, Seq: last}, true)
				require.Equal(t, Refused, f.says(f.refused(wire.Part{Service: service, Total: total}), 0))
				continue
			}
			require.Nil(t, f.refused(wire.Part{Service: service, Total: total}))
			require.Zero(t, f.n.e.Stats.Refused)
			for i := range wire.Count(total, 100) {
				require.Equal(t, Delivered, f.says(f.part(wire.Part{Service: service, Seq: i, Index: i, Total: total}, true), i))
			}
			require.Len(t, f.got, 1)
		}
	}
}

// What was refused or given up in part is not begun anew by a part that comes late.
func TestGivenUp(t *testing.T) {
	for _, service := range []uint8{Reliable, Ordered} {
		f := feed(t, 5)
		part := func(seq, index, floor uint32, cancel bool) *wire.Response {
			return f.part(wire.Part{Service: service, Seq: seq, Index: index, Floor: floor, Total: 350, Cancel: cancel}, true)
		}
		require.Equal(t, Refused, f.says(f.refused(wire.Part{Service: service, Seq: 1, Index: 1, Total: 350}), 1))
		require.Equal(t, Refused, f.says(part(2, 2, 0, false), 2), "the message lacks a part for good")
		require.Nil(t, f.p.rx[service].assemblies)

		part(4, 0, 0, false)
		require.NotNil(t, f.p.rx[service].assemblies)
		require.Equal(t, Refused, f.says(part(5, 1, 0, true), 5))
		require.Nil(t, f.p.rx[service].assemblies, "given up")
		require.Equal(t, Refused, f.says(part(6, 2, 0, false), 6))

		part(8, 0, 0, false) // cut short: the next message begins within
		require.NotNil(t, f.p.rx[service].assemblies)
		part(11, 1, 0, false)
		require.Nil(t, f.p.rx[service].assemblies.Next)

		part(13, 3, 10, false)
		require.NotNil(t, f.p.rx[service].assemblies)
		part(20, 0, 20, false)
		require.Nil(t, f.p.rx[service].assemblies.Next, "what is before the floor never comes")
		require.Empty(t, f.got)
		for i := uint32(1); i < 4; i++ {
			part(20+i, i, 20, false)
		}
		require.Len(t, f.got, 1)
		require.Len(t, f.got[0].Bytes, 350)
	}
}

// A cancel that asks for a packet that came gives nothing up.
func TestCancelOfWhatCame(t *testing.T) {
	f := feed(t, 5)
	f.part(wire.Part{Service: NoRetransmit, Seq: 0, Index: 0, Total: 150}, true)
	r := f.part(wire.Part{Service: NoRetransmit, Seq: 0, Index: 0, Total: 150, Cancel: true}, true)
	require.Equal(t, Delivered, f.says(r, 0))
	f.part(wire.Part{Service: NoRetransmit, Seq: 1, Index: 1, Total: 150}, true)
	require.Len(t, f.got, 1)
}

// A flow has a window: what is past it, or of no flow, changes nothing.
func TestWindow(t *testing.T) {
	f := feed(t, 1<<32-100)
	f.part(wire.Part{Seq: 0}, true)
	bogus := f.n.e.Stats.Bogus
	require.Nil(t, f.part(wire.Part{Seq: wire.Window, Floor: 0}, true))
	require.Nil(t, f.part(wire.Part{Seq: 3, Floor: 4}, true))
	require.Equal(t, bogus+2, f.n.e.Stats.Bogus)
	f.part(wire.Part{Seq: 100, Floor: 100}, true)
	require.Len(t, f.got, 2)
	duplicates := f.n.e.Stats.Duplicates
	for _, old := range []uint32{0, 50, 99, 100} {
		require.NotNil(t, f.part(wire.Part{Seq: old, Floor: min(old, 40)}, false), "a duplicate is answered at once")
	}
	require.Equal(t, duplicates+4, f.n.e.Stats.Duplicates)
	require.Len(t, f.got, 2)
	refused := f.n.e.Stats.Refused
	r := f.part(wire.Part{Seq: 101, Floor: 100, Total: 1 << 21}, true)
	require.Equal(t, Refused, f.says(r, 101), "longer than messages may be")
	require.Equal(t, refused+1, f.n.e.Stats.Refused)
}

// A response waits for others, unless a sub-flow has a gap.
func TestResponseWaits(t *testing.T) {
	f := feed(t, 50)
	number := f.n.e.network(f.p).subs[1]
	send := func(seq uint32, step uint16) *wire.Response {
		number += step
		k := wire.Packet{Type: wire.Flow, Token: f.p.Local, VTag: f.p.Theirs, SubFlow: 1, SubSeq: number, HasPart: true, Part: wire.Part{Seq: 50 + seq, Floor: 50, Fragment: 10}}
		b := make([]byte, wire.MaxHeaders)
		f.n.e.Receive(source(addrOf(0)), b[:k.Encode(b)])
		if a := answers(f.n); len(a) > 0 {
			return &a[0].Response
		}
		return nil
	}
	require.Nil(t, send(1, 1))
	require.Nil(t, send(3, 1), "another path may bring it")
	require.NotNil(t, send(5, 2), "this one has lost something")
	require.Nil(t, send(6, 1))
	f.n.w.now += f.n.e.cfg.AckDelay
	f.n.e.Advance(f.n.raw())
	require.Len(t, answers(f.n), 1)
	require.Nil(t, send(7, 1))
	for i := range uint32(30) {
		require.Nil(t, send(8+i, 1))
	}
	require.NotNil(t, send(38, 1), "32 are enough")
}

// An ordered message that waits for one that never comes is delivered when the sender is
// long silent; what is late then is refused.
func TestOrderedAfterSilence(t *testing.T) {
	f := feed(t, 50)
	part := func(seq uint32) *wire.Response { return f.part(wire.Part{Service: Ordered, Seq: seq}, true) }
	part(2)
	part(1)
	require.Empty(t, f.got)
	for range 100 {
		f.n.w.now += 50 * time.Millisecond
		f.n.e.Advance(f.n.raw())
	}
	require.Len(t, f.got, 2)
	require.Equal(t, Refused, f.says(part(0), 0))
	require.Len(t, f.got, 2)
}

// Ordered messages are delivered in the order of their numbers, in whichever they came.
func TestOrderedAfterOthers(t *testing.T) {
	for _, came := range [][]uint32{{3, 2, 1, 0}, {1, 2, 3, 0}, {2, 3, 1, 0}, {3, 0, 2, 1}} {
		f := feed(t, 50)
		for _, seq := range came {
			f.part(wire.Part{Service: Ordered, Seq: seq, Total: 10 + seq}, true)
		}
		require.Len(t, f.got, 4, came)
		for i := range f.got {
			require.Len(t, f.got[i].Bytes, 10+i, came)
		}
	}
}

// A message of which the rest does not come gives its memory back, and no later part of it
// begins another one.
func TestPartOfASilentSender(t *testing.T) {
	f := feed(t, 50)
	part := func(i uint32) *wire.Response {
		return f.part(wire.Part{Service: Reliable, Seq: i, Index: i, Total: 200}, true)
	}
	require.Equal(t, Delivered, f.says(part(0), 0))
	wait := func(d time.Duration) {
		f.n.w.now += d
		f.n.e.Advance(f.n.raw())
	}
	for timeout := f.n.e.cfg.PeerTimeout; timeout > 0; timeout -= f.n.e.cfg.PeerTimeout / 20 {
		wait(f.n.e.cfg.PeerTimeout / 20)
	}
	require.Zero(t, f.dropped)
	for range 40 {
		wait(f.n.e.cfg.PeerTimeout / 20)
	}
	require.Equal(t, 1, f.dropped)
	require.Equal(t, Refused, f.says(part(1), 1))
	require.Empty(t, f.got)
	require.Equal(t, 1, f.dropped)
}

// A response of packets that were never sent settles nothing; neither does one of those
// that were settled long ago.
func TestBogusResponses(t *testing.T) {
	w := settledPair(t, nil)
	a := w.nodes[0]
	p := a.e.peers[0]
	w.links = func(int, int, int) *link { return &link{dead: true} }
	l := w.model.post(a, 1, Reliable, 64)
	a.pump()
	bogus := a.e.Stats.Bogus
	respond := func(r wire.Response) {
		k := wire.Packet{Type: wire.Flow, Token: p.Local, VTag: p.Theirs, HasResponse: true, Response: r}
		b := make([]byte, wire.MaxHeaders)
		a.e.Receive(source(addrOf(1)), b[:k.Encode(b)])
	}
	nxt := p.tx[Reliable].nxt
	respond(wire.Response{Base: nxt + 1})
	respond(wire.Response{Base: nxt + 1<<30})
	respond(wire.Response{Base: nxt - 1000})
	require.Equal(t, bogus+3, a.e.Stats.Bogus)
	respond(wire.Response{Base: nxt - 100})
	respond(wire.Response{Base: nxt - 1, NSeen: 1, Seen: [wire.SeenWords]uint64{^uint64(1)}}) // all but the one that was sent
	respond(wire.Response{Service: NoRetransmit, Base: 1})
	require.Zero(t, l.status)
	require.EqualValues(t, 1, p.flying)
	l.count = 1 // as if
	respond(wire.Response{Base: nxt})
	require.Equal(t, Delivered, l.status)
}

// TestResponsesOfAll: a packet has one response; the others that are owed go at once too,
// though the peer has nothing more to be sent.
func TestResponsesOfAll(t *testing.T) {
	f := feed(t, 0)
	for _, service := range []uint8{Reliable, Ordered, NoRetransmit} {
		k := wire.Packet{Type: wire.Flow, Token: f.p.Local, VTag: f.p.Theirs, RespondNow: true, HasPart: true,
			Part: wire.Part{Service: service, Total: 8, Fragment: 100}}
		b := make([]byte, wire.MaxHeaders)
		f.n.e.Receive(source(addrOf(0)), append(b[:k.Encode(b)], make([]byte, 8)...))
	}
	_, err := f.n.e.Send(addrOf(0), Message{Len: 8, Service: Reliable})
	require.NoError(t, err)
	var services []uint8
	parts := 0
	for _, a := range answers(f.n) {
		if a.HasPart {
			parts++
		}
		if a.HasResponse {
			services = append(services, a.Response.Service)
		}
	}
	require.Equal(t, 1, parts)
	require.ElementsMatch(t, []uint8{Reliable, Ordered, NoRetransmit}, services)
}
