package machine

import (
	"cmp"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/broker"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// An agent's clients ask it for turns at locks that they take and hold themselves, see
// lockoffload.Fair. Package broker decides which client is next; this file moves its
// decisions to the device and to the clients. A request for a turn occupies no receive
// buffer while it waits.

const (
	// TurnLists are the broker's lists of lock commands under way at a time.
	TurnLists = 32
	// TurnWords are the results of one list.
	TurnWords = 2
	// turnEager is how often a lock that is about to be given back is tried at once.
	turnEager = 4
	// reservationTimeout is how long a lock stays reserved for a client that does not take
	// it.
	reservationTimeout = 500 * time.Millisecond
	// turnRun is how long a lock is handed on before it is let go, and TurnGap how long
	// it is left free then.
	turnRun = 200 * time.Millisecond
	TurnGap = 10 * time.Millisecond
	// turnsReserved is how many locks are reserved for one client at a time, at most. The
	// agent refuses more.
	turnsReserved = 1024
)

func (c *Agent) newBroker() *broker.Broker {
	l := &c.Limits
	return broker.New(broker.Config{
		Lists: TurnLists, Timeout: cmp.Or(l.reservation, reservationTimeout), MaxRun: cmp.Or(l.run, turnRun), Gap: cmp.Or(l.gap, TurnGap),
		MinPause: c.Limits.MinPause, MaxPause: c.Limits.MaxPause, Eager: turnEager, MaxReserved: turnsReserved,
		Word: func() uint64 { c.tags++; return c.Slots.reservation(c.tags) },
	})
}

// takeTurnRequest passes a request for a turn to the broker.
func (c *Agent) takeTurnRequest(now time.Duration, peer, entry int32, r *wire.ChainRequest) {
	if uint64(r.Slot) >= uint64(c.Slots.Slots) {
		c.Stats.Refused++
		c.replyStatus(peer, entry, wire.ChainRefused, 0)
		return
	}
	e := &c.peers[peer].entries[entry]
	e.running, e.turn, e.slot = true, true, r.Slot
	c.Broker.Ask(now, r.Slot, broker.Ask{Peer: peer, Seq: r.Seq})
}

// withdraw takes back a request for a turn when its client sends another request in its
// place: its reply would have no place any more. So no client has more requests waiting
// than it has places.
func (c *Agent) withdraw(now time.Duration, peer int32, e *agentEntry) {
	if e.running && e.turn {
		c.Broker.Done(now, e.slot, broker.Ask{Peer: peer, Seq: e.seq})
	}
}

// endTurn passes the end of a turn, which has no reply, to the broker: the broker finds
// out if the message gets lost, and a second one changes nothing.
func (c *Agent) endTurn(now time.Duration, peer int32, r *wire.ChainRequest) {
	ops := r.Ops
	c.Broker.Done(now, r.Slot, broker.Ask{Peer: peer, Seq: ops.Next().Version})
}

// TurnResult takes the results of a broker's list.
func (c *Agent) TurnResult(now time.Duration, list int, old []uint64) {
	c.Broker.Result(now, list, old)
}

// replyTurns sends the broker's replies. A client that did not wait for its reply, and
// has another request under way in its place, loses the turn.
func (c *Agent) replyTurns(now time.Duration) {
	for i := 0; i < len(c.Broker.Replies); i++ { // Done may add some
		a := c.Broker.Replies[i]
		p, at := &c.peers[a.Peer], int32(a.Seq%uint64(c.Limits.Window))
		e := &p.entries[at]
		switch {
		case !p.live || e.seq != a.Seq || !e.running:
			c.Broker.Done(now, a.Slot, a.Ask)
		case a.Word == 0:
			e.running = false
			c.replyStatus(a.Peer, at, wire.ChainNotAcquired, 0)
		default:
			e.running = false
			c.Stats.Turns++
			r := wire.ChainReply{Client: p.id, Seq: a.Seq, Status: wire.ChainDone, Tries: 1, Agent: p.identity}
			b := r.AppendTo(c.reply(a.Peer, at)[:0])
			wire.SealMessage(wire.AppendAccess(b, wire.Access{Kind: wire.AccessCompare, Version: a.Word}), 1)
			c.send(a.Peer, at)
		}
	}
	c.Broker.Replies = c.Broker.Replies[:0]
	c.Stats.Lapsed = c.Broker.Lapsed
}

// Rings returns the time at which Turn is to be called at the latest.
func (c *Agent) Rings() time.Duration { return min(c.alarm, c.Broker.Alarm()) }
