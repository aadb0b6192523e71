package offload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

// forgets has a node forget its first peer, as a full table does with a peer that was silent
// for long.
func (n *node) forgets() {
	n.m.Advance(n.raw())
	p := n.m.peers[0]
	require.True(n.w.t, !p.unsettled() && n.m.Now-p.Heard.At > n.m.cfg.EvictAge)
	n.m.Forget(&p.Peer)
}

// A message that came before its receiver forgot the sender does not come again: whether the
// sender is the more patient, or its clock stood still meanwhile.
func TestMessageFromBeforeThePeerForgot(t *testing.T) {
	for _, patient := range []bool{false, true} {
		w := greeted(t, simple())
		w.hurry = true
		a, b := w.nodes[0], w.nodes[1]
		remember := b.m.cfg.EvictAge
		if patient {
			a.m.cfg.PeerTimeout *= 5
			a.m.cfg.EvictAge *= 5
		}
		l := w.send(a, 1, engine.Reliable, 20)
		for l.count == 0 {
			w.lose = 0
			w.Run(w.Now + time.Microsecond)
			w.lose = 1
		}
		if !patient {
			a.asleep = true
			a.offset -= remember + time.Second
		}
		w.Run(w.Now + remember + time.Second)
		require.Zero(t, l.status)
		b.forgets()
		w.lose = 0
		a.wake()
		w.Run(w.Now + 60*time.Second)
		require.Equal(t, 1, l.count)
		require.Equal(t, engine.Unresponsive, l.status)
	}
}

// A peer that may have forgotten its sender is greeted before anything is sent, as soon as the
// peer's time may be over: the sender's is longer here.
func TestGreetedAgainAfterAPause(t *testing.T) {
	w := greeted(t, simple())
	a, b := w.nodes[0], w.nodes[1]
	remember := b.m.cfg.EvictAge
	a.m.cfg.PeerTimeout *= 5
	a.m.cfg.EvictAge *= 5
	send := func() {
		l := w.send(a, 1, engine.Reliable, 20)
		w.Run(w.Now + time.Second/10)
		require.Equal(t, engine.Delivered, l.status)
		require.Equal(t, 1, l.count)
	}
	send()
	w.Run(w.Now + remember/2 - time.Second/5)
	sessions, sent := a.m.Stats.Sessions, a.m.Stats.Sent
	send()
	require.Equal(t, sent+1, a.m.Stats.Sent, "the peer is not greeted")
	w.Run(w.Now + remember/2)
	send()
	require.Equal(t, sent+3, a.m.Stats.Sent, "the peer is greeted")
	require.Equal(t, sessions, a.m.Stats.Sessions)
	w.Run(w.Now + remember + time.Second/10)
	b.forgets()
	send()
	require.Equal(t, sessions+1, a.m.Stats.Sessions)
}

// A peer that sends by a session that is not known here is greeted once for what it sends: a reply that does not
// come is not asked for again until it sends more.
func TestGreetedForWhatItSends(t *testing.T) {
	s := newSolo(t, Config{})
	q := s.find(addrOf(5))
	b := make([]byte, wire.MaxHeaders)
	k := wire.Packet{Type: wire.Flow, Token: q.Local, VTag: 7, HasCredit: true}
	n := k.Encode(b)
	for range 2 {
		s.Receive(q.Addr.QPN, b[:n])
		for i := range 100 {
			h := s.next(0)
			require.Equal(t, i == 0, h != nil)
			if h != nil {
				require.Equal(t, wire.Hello, h.Type)
				require.Equal(t, q.Addr, s.to)
				s.Completed(0, Landed)
			}
			s.sleep(s.cfg.PeerTimeout / 20)
		}
		require.Equal(t, session.Known, q.State)
	}
}
