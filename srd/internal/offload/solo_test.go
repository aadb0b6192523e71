package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// solo is a machine whose peers and device are the test.
type solo struct {
	*Machine
	t    *testing.T
	host *counter
	p    *peer // that it has a session with
	raw  time.Duration
	to   wire.Addr // of the last packet
	sent uint64    // messages
}

func newSolo(t *testing.T, cfg Config) *solo {
	s := &solo{t: t, host: new(counter)}
	cfg.Addr, cfg.Wall, cfg.MTU, cfg.Host, cfg.Slots = addrOf(0), 5, 400, s.host, 600
	s.Machine = New(cfg)
	s.p = s.join(1)
	s.sleep(time.Millisecond)
	return s
}

// join begins a session with a peer.
func (s *solo) join(i int) *peer {
	p := s.find(addrOf(i))
	s.Renew(&p.Peer, 9, 9, anyLimits)
	return p
}

func (s *solo) sleep(d time.Duration) {
	for d > 0 {
		step := min(d, s.cfg.PeerTimeout/16) // a clock that jumps says nothing
		s.Wait()
		s.raw, d = s.raw+step, d-step
		s.Advance(s.raw)
	}
}

// send hands a message to peer 1 in. Its tag is the number of those before it.
func (s *solo) send(service uint8, length int, now bool) engine.Handle {
	h, err := s.Send(s.p.Addr, engine.Message{Service: service, Len: length, Now: now, Tag: s.sent})
	require.NoError(s.t, err)
	s.sent++
	return h
}

// next returns the next packet, or nil. The device has it in a slot.
func (s *solo) next(slot int) *wire.Packet {
	b := make([]byte, wire.MaxHeaders)
	var o engine.Out
	if !s.Next(slot, b, &o) {
		return nil
	}
	s.to = o.To
	k := new(wire.Packet)
	require.NoError(s.t, k.Decode(append(b[:o.Headers:o.Headers], make([]byte, o.Length)...)))
	return k
}

// from has a packet of peer 1 arrive.
func (s *solo) from(k wire.Packet) {
	k.Type, k.Token, k.VTag = wire.Flow, s.p.Local, s.p.Theirs
	b := make([]byte, wire.MaxHeaders, 2*wire.MaxHeaders)
	b = b[:k.Encode(b)]
	if k.HasPart {
		b = append(b, make([]byte, k.Part.Length())...)
	}
	s.Receive(s.p.Addr.QPN, b)
}

// part has a message of one packet arrive, or a piece of a longer one.
func (s *solo) part(p wire.Part, now bool) {
	p.Fragment = 100
	s.from(wire.Packet{RespondNow: now, HasPart: true, Part: p})
}

// answer has a response of peer 1 arrive.
func (s *solo) answer(r wire.Response) {
	s.from(wire.Packet{HasResponse: true, Response: r, Stamp: s.Stamp()})
}

// credit has peer 1 take all packets and give credit for n more.
func (s *solo) credit(n int) {
	s.from(wire.Packet{HasCredit: true, Credit: wire.Credit{Taken: s.p.posted, Grant: uint16(n)}})
}

// A response is asked for with the last packet of messages that the program waits for, and with the last one that
// there is credit for.
func TestRespondNow(t *testing.T) {
	s := newSolo(t, Config{})
	asks := func(want ...bool) {
		t.Helper()
		for _, w := range want {
			k := s.next(0)
			require.NotNil(t, k)
			require.Equal(t, w, k.RespondNow)
			s.Completed(0, Landed)
		}
		require.Nil(t, s.next(0))
	}
	s.credit(100)
	s.send(engine.Reliable, 2*s.fragment, true)
	s.send(engine.Reliable, 10, true)
	asks(false, false, true)
	s.send(engine.Reliable, 10, true)
	s.send(engine.Reliable, 10, false)
	asks(false, false)
	s.credit(2)
	for range 3 {
		s.send(engine.Reliable, 10, false)
	}
	asks(false, true)
	s.credit(1)
	asks(true)
}

// Peers take turns of several packets, and the services of a peer of one.
func TestTurns(t *testing.T) {
	s := newSolo(t, Config{})
	q := s.join(2)
	s.p.grant, q.grant = 100, 100
	for range 20 {
		for _, p := range []*peer{s.p, q} {
			_, err := s.Send(p.Addr, engine.Message{Len: 10})
			require.NoError(t, err)
		}
	}
	runs := []int{0}
	for last := addrOf(1); s.next(0) != nil; last = s.to {
		if s.to != last {
			runs = append(runs, 0)
		}
		runs[len(runs)-1]++
	}
	require.Equal(t, []int{8, 8, 8, 8, 4, 4}, runs)

	for service := range uint8(wire.Services) {
		for range 3 {
			s.send(service, 10, false)
		}
	}
	for range 3 {
		var services [wire.Services]int
		for range wire.Services {
			services[s.next(0).Part.Service]++
		}
		require.Equal(t, [wire.Services]int{1, 1, 1}, services)
	}
}

// Packets for which the peer has no buffer go again after a pause that doubles up to 64 times its length,
// however many there were. A packet that lands ends that.
func TestRounds(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(100)
	round := func(n int, delay time.Duration) {
		t.Helper()
		for slot := range n {
			require.NotNil(t, s.next(slot))
		}
		require.Nil(t, s.next(n))
		for slot := range n {
			s.Completed(slot, NotReady)
		}
		require.Nil(t, s.next(0))
		s.sleep(delay - time.Microsecond)
		require.Nil(t, s.next(0))
		s.sleep(time.Microsecond)
	}
	for range 3 {
		s.send(engine.Reliable, 10, false)
	}
	for i := range refuseTries - 1 {
		round(3, s.cfg.RetryDelay<<i)
	}
	require.NotNil(t, s.next(0))
	s.Completed(0, Landed)
	for i := range refuseTries - 1 {
		round(2, s.cfg.RetryDelay<<i)
	}
	require.Zero(t, s.host.settled)
	require.EqualValues(t, 5*(refuseTries-1), s.Stats.Timeouts)
	require.EqualValues(t, 5*(refuseTries-1), s.Stats.Retransmitted)
	round(2, s.cfg.RetryDelay<<6)
	require.Equal(t, 2, s.host.settled)
	require.Equal(t, engine.Refused, s.host.last.Status)
	require.Equal(t, 1, s.host.last.Refused)
	round(2, s.cfg.RetryDelay<<6) // the receiver is told to pass them
	for slot := range 2 {
		k := s.next(slot)
		require.True(t, k.Part.Cancel)
		s.Completed(slot, Landed)
	}
	require.True(t, s.p.unsettled())
	s.answer(wire.Response{Base: 3})
	require.False(t, s.p.unsettled())
	require.Equal(t, 3, s.host.settled)
}

// A message that the peer has no buffer for for long goes once in each round.
func TestRoundsOfOne(t *testing.T) {
	s := newSolo(t, Config{Config: session.Config{PeerTimeout: 400 * time.Millisecond}})
	s.send(engine.Reliable, 10, false)
	for i := range refuseTries - 1 {
		require.NotNil(t, s.next(0))
		require.Nil(t, s.next(1))
		s.Completed(0, NotReady)
		s.sleep(s.cfg.RetryDelay << i)
	}
	require.Zero(t, s.host.settled)
}

// A message to a peer of which nothing comes ends after PeerTimeout, and that peer is no longer greeted.
func TestSilence(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := newSolo(t, Config{})
		p := s.p
		if !known {
			p = s.find(addrOf(5))
		}
		_, err := s.Send(p.Addr, engine.Message{Len: 10})
		require.NoError(t, err)
		for s.next(0) != nil {
		}
		begin := max(p.Heard.At, p.Progress)
		s.sleep(begin + s.cfg.PeerTimeout - s.Now - time.Microsecond)
		require.Zero(t, s.host.settled)
		s.sleep(time.Microsecond)
		require.Equal(t, 1, s.host.settled)
		require.Equal(t, engine.Unresponsive, s.host.last.Status)
		require.Equal(t, !known, s.host.last.Unauthenticated)
		require.Equal(t, session.Known, p.State)
		s.sleep(time.Minute)
		require.Nil(t, s.next(0))
	}
}

// A message that was not begun is cancelled at once, and the peer does not hear of it.
func TestCancelBeforeTheFirstPacket(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(0)
	s.Cancel(s.send(engine.Reliable, 10, false))
	require.Equal(t, engine.Cancelled, s.host.last.Status)
	require.False(t, s.p.unsettled())
	s.credit(10)
	require.Nil(t, s.next(0))
}

// A peer that turns out to have taken nothing after it was asked twice is sent everything again, and told again
// what was given up.
func TestPacketsThatAreNotThere(t *testing.T) {
	for _, checks := range []uint8{1, 2} {
		s := newSolo(t, Config{})
		s.credit(100)
		s.send(engine.Reliable, s.fragment+1, false)
		gone := s.send(engine.Reliable, 10, false)
		s.send(engine.Reliable, 10, false)
		for s.next(0) != nil {
			s.Completed(0, Landed)
		}
		s.Cancel(gone)
		require.True(t, s.next(0).Part.Cancel)
		s.Completed(0, Landed)
		s.answer(wire.Response{NSeen: 1, Seen: [wire.SeenWords]uint64{1 << 2}})
		require.Equal(t, 1, s.host.settled)
		s.Greet(&s.p.Peer)
		require.Equal(t, wire.Hello, s.next(0).Type)
		s.p.checks = checks
		b := make([]byte, wire.MaxHeaders)
		k := wire.Packet{Type: wire.Welcome, Token: s.p.Local, Welcome: wire.Granted{Epoch: s.p.Epoch, Token: s.p.Remote, Hello: s.p.Mine, Limits: anyLimits}}
		s.Receive(s.p.Addr.QPN, b[:k.Encode(b)])
		if checks < 2 {
			require.Nil(t, s.next(0))
			continue
		}
		require.Zero(t, s.p.underWay())
		require.EqualValues(t, 1, s.mislaid)
		type piece struct {
			seq, index uint32
			cancel     bool
		}
		var got []piece
		for k := s.next(0); k != nil; k = s.next(0) {
			got = append(got, piece{k.Part.Seq, k.Part.Index, k.Part.Cancel})
		}
		require.Equal(t, []piece{{1, 0, true}, {0, 0, false}, {0, 1, false}}, got)
		s.Receive(s.p.Addr.QPN, b[:k.Encode(b)])
		require.Nil(t, s.next(0), "the Welcome came twice")
	}
}

// What becomes of a message, of which a packet went, when the peer says which incarnation of this endpoint it knows.
func TestChallenges(t *testing.T) {
	const (
		nothing = iota
		ends    // as unresponsive
		again   // in the next session
	)
	for i, c := range []struct {
		state session.State
		known int // beyond its own
		want  int
	}{
		{session.Established, -1, nothing},
		{session.Established, 0, nothing},
		{session.Established, 1, again},
		{session.Greeting, -1, nothing},
		{session.Greeting, 0, ends},
		{session.Greeting, 1, again},
		{session.Known, 1, nothing},
	} {
		s := newSolo(t, Config{})
		s.part(wire.Part{Total: 10}, true)
		s.send(engine.Reliable, 10, false)
		require.NotNil(t, s.next(0))
		if c.state == session.Greeting {
			s.Greet(&s.p.Peer)
			require.Equal(t, wire.Hello, s.next(1).Type)
		}
		s.p.State = c.state
		b := make([]byte, wire.MaxHeaders)
		k := wire.Packet{Type: wire.Challenge, Token: s.p.Local, Challenge: wire.Challenged{Cookie: 3, Known: uint64(int(s.p.Mine) + c.known)}}
		s.Receive(s.p.Addr.QPN, b[:k.Encode(b)])
		require.Equal(t, c.want == ends, s.host.settled == 1, i)
		require.Equal(t, c.want != ends, s.p.unsettled(), i)
		require.Equal(t, c.want == nothing, s.p.arrived == 1, i)
		require.Equal(t, c.want != nothing, s.p.tx[0].una == s.p.tx[0].nxt, i)
	}
}

// A peer that was forgotten is none of the peers.
func TestPeers(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(10)
	s.send(engine.Reliable, 10, false)
	require.NotNil(t, s.next(0))
	var got []engine.PeerStats
	list := func() {
		got = nil
		s.Peers(func(p *engine.PeerStats) { got = append(got, *p) })
	}
	list()
	require.Equal(t, []engine.PeerStats{{Addr: addrOf(1), Established: true, UnderWay: 1, Grant: 10}}, got)
	s.answer(wire.Response{Base: 1})
	s.Forget(&s.p.Peer)
	list()
	require.Empty(t, got)
}

// What the device reports, and after how many rounds messages have which status for it.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		outcome Outcome
		service uint8
		rounds  int
		status  engine.Status
	}{
		{NotReady, engine.Reliable, 7, engine.Refused},
		{NotReady, engine.Ordered, 7, engine.Refused},
		{NotReady, engine.NoRetransmit, 1, engine.Retransmit},
		{Gone, engine.Reliable, 3, engine.Unresponsive},
		{Silent, engine.Reliable, 1, engine.Unresponsive},
		{Silent, engine.NoRetransmit, 1, engine.Unresponsive},
	} {
		s := newSolo(t, Config{})
		s.credit(100)
		s.send(c.service, 10, false)
		for round := 1; s.host.settled == 0; round++ {
			require.LessOrEqual(t, round, c.rounds, "%+v", c)
			require.NotNil(t, s.next(0))
			s.Completed(0, c.outcome)
			require.Equal(t, round == c.rounds, s.host.settled == 1, "%+v", c)
			s.sleep(100 * time.Millisecond)
		}
		require.Equal(t, c.status, s.host.last.Status, "%+v", c)
	}
}

// A packet that may have arrived leaves it to the receiver what the status is.
func TestPacketThatMayHaveArrived(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(100)
	s.send(engine.NoRetransmit, 10, false)
	require.NotNil(t, s.next(0))
	s.Completed(0, Failed)
	s.sleep(10 * time.Millisecond)
	require.Zero(t, s.host.settled)
	k := s.next(0)
	require.True(t, k.Part.Cancel)
	s.answer(wire.Response{Service: engine.NoRetransmit, Base: 1})
	require.Equal(t, engine.Delivered, s.host.last.Status, "it had arrived")

	s.send(engine.NoRetransmit, 10, false)
	require.NotNil(t, s.next(1))
	s.Completed(1, Failed)
	s.sleep(10 * time.Millisecond)
	require.True(t, s.next(1).Part.Cancel)
	s.answer(wire.Response{Service: engine.NoRetransmit, Base: 2, Floor: 1, NRefused: 1, Refused: [wire.RefusedWords]uint64{1}})
	require.Equal(t, engine.Retransmit, s.host.last.Status)
}

// Nor has the receiver refused a message for which it had no buffer later, if a packet of it may have arrived before.
func TestNoBufferAfterAll(t *testing.T) {
	s := newSolo(t, Config{})
	s.send(engine.Reliable, 10, false)
	for i := range refuseTries {
		require.NotNil(t, s.next(0))
		s.Completed(0, []Outcome{Failed, NotReady}[min(i, 1)])
		s.sleep(s.cfg.RetryDelay << i)
	}
	require.Zero(t, s.host.settled)
	require.True(t, s.next(0).Part.Cancel)
	s.answer(wire.Response{Base: 1})
	require.Equal(t, engine.Delivered, s.host.last.Status)
}

// Packets that are malformed, or have a number far ahead, are counted, and change nothing else.
func TestPacketsThatAreRefused(t *testing.T) {
	s := newSolo(t, Config{})
	s.part(wire.Part{Total: 200}, false)
	before := s.Stats
	s.Receive(s.p.Addr.QPN, []byte{1})
	require.Equal(t, before.Malformed+1, s.Stats.Malformed)
	require.EqualValues(t, 1, s.p.arrived)
	require.Equal(t, before.Duplicates, s.Stats.Duplicates)
	s.part(wire.Part{Seq: wire.Window, Total: 10}, false)
	require.Equal(t, before.Bogus+1, s.Stats.Bogus)
	require.Equal(t, before.Delivered, s.Stats.Delivered)
}

// A completion says nothing in a session that began after its packet, nor when its peer was forgotten.
func TestLateCompletions(t *testing.T) {
	for _, forget := range []bool{false, true} {
		s := newSolo(t, Config{})
		for range 3 { // sessions
			for slot := range 2 {
				s.send(engine.Reliable, 10, false)
				require.NotNil(t, s.next(slot))
			}
			s.enter(s.p)
			s.Renew(&s.p.Peer, s.p.Epoch+1, 9, anyLimits)
			require.Equal(t, engine.Unresponsive, s.host.last.Status)
			require.Empty(t, s.Senders)
			if forget {
				s.enter(s.p)
				s.Forget(&s.p.Peer)
				require.Empty(t, s.Senders)
			}
			before := s.Stats.Timeouts
			s.Completed(0, NotReady)
			s.Completed(1, NotReady)
			require.Equal(t, before, s.Stats.Timeouts)
			require.Zero(t, s.p.retryAt)
			if forget {
				require.Nil(t, s.next(0))
				s.p = s.join(1)
			}
		}
	}
}

// A response, or credit, that did not arrive goes again; without end only while packets are told apart from
// silence.
func TestWordsGoAgain(t *testing.T) {
	s := newSolo(t, Config{Config: session.Config{PeerTimeout: time.Hour}})
	s.part(wire.Part{Total: 10}, true)
	for i := range wordTries {
		k := s.next(0)
		require.NotNil(t, k, i)
		require.True(t, k.HasResponse && k.HasCredit)
		require.EqualValues(t, 1, k.Response.Base)
		require.Nil(t, s.next(1))
		s.Completed(0, NotReady)
		s.sleep(s.cfg.RetryDelay << 6)
	}
	require.Nil(t, s.next(0))
	s.part(wire.Part{Seq: 1, Total: 10}, true)
	require.NotNil(t, s.next(0))
}

// A message that is given up is not sent again when a packet of it did not arrive.
func TestGivenUpIsNotSentAgain(t *testing.T) {
	s := newSolo(t, Config{})
	s.credit(100)
	h := s.send(engine.Reliable, 10, false)
	require.NotNil(t, s.next(0))
	s.Cancel(h)
	s.Completed(0, NotReady)
	require.Zero(t, s.Stats.Retransmitted)
	require.Equal(t, engine.Status(0), s.host.last.Status)
}

// Credit counts as long as the peer has said something of messages lately: of what it gave before a pause it may have
// given others a part.
func TestCreditAfterAPause(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newSolo(t, Config{})
		s.credit(100)
		s.send(engine.Reliable, 10, false)
		require.NotNil(t, s.next(0))
		s.sleep(session.SenderAge/2 + time.Millisecond)
		s.answer(wire.Response{Base: 1})
		require.False(t, s.p.unsettled())
		if late {
			s.sleep(session.SenderAge/2 + time.Millisecond)
		}
		before := s.p.grant
		s.send(engine.Reliable, 10, false)
		require.Equal(t, late, s.p.grant < before)
	}
}
