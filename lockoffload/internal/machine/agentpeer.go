package machine

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// agentPeer is a client as the agent knows it, with the last replies to it: entry
// (sequence mod window) has the newest chain of those that share it. A client
// has at most window chains without a reply, so no reply that it may still
// ask for is overwritten.
type agentPeer struct {
	id       uint64
	live     bool
	gen      uint32  // counts clients of this place
	identity uint32  // of the agent, as this client knows it
	conn     uint32  // counts queue pairs
	inside   int     // jobs without a reply
	sends    uint64  // replies sent so far
	sending  int     // of those, on this queue pair, replies without a completion
	queue    []int32 // jobs
	inTurns  bool    // named in the core's turns
	entries  []agentEntry
}

type agentEntry struct {
	seq     uint64 // 0: never used
	running bool   // no reply yet
	turn    bool   // it is a request for a turn, at the lock of slot
	slot    uint32
	again   uint64 // which of the peer's sends has repeated the reply; 0: none
}

// AgentStats are lockoffload.AgentStats.
type AgentStats struct {
	Accepted, Done, Differs, NotAcquired, Damaged, Lost, Busy, Refused, Repeated, Unknown, Malformed uint64
	Carried, Tries, Unsent, Turns, Lapsed                                                            uint64
}

func (s *AgentStats) count(status wire.ChainStatus) {
	switch status {
	case wire.ChainDone:
		s.Done++
	case wire.ChainDiffers:
		s.Differs++
	case wire.ChainNotAcquired:
		s.NotAcquired++
	case wire.ChainDamaged:
		s.Damaged++
	}
}

// newIdentity returns the agent's identity for a client, from which the client sees that
// its replies are remembered. A client that was forgotten gets another one when it comes
// back: its earlier requests may have been executed. So does each client of another agent,
// which began at another number.
func (c *Agent) newIdentity() uint32 {
	const step = 0x9e3779b9 // odd: no number comes again before all others did
	c.id += step
	if c.id == 0 { // means none
		c.id += step
	}
	return c.id
}

// Attach makes room for a client, or notes that it has a new queue pair: replies
// sent on the old one are no longer counted.
func (c *Agent) Attach(id uint64) (peer int32, conn uint32, err error) {
	peer, known := c.ByID[id]
	if !known {
		peer = -1
		for i := range c.peers {
			if !c.peers[i].live {
				peer = int32(i)
				break
			}
		}
		if peer < 0 {
			return 0, 0, fmt.Errorf("%w: the agent has %d clients already", memory.ErrConfig, len(c.peers))
		}
		p := &c.peers[peer]
		clear(p.entries)
		p.id, p.live, p.inside = id, true, 0
		p.identity = c.newIdentity()
		c.ByID[id] = peer
	}
	p := &c.peers[peer]
	p.conn++
	p.sending = 0 // so none of an earlier queue pair is waited for
	return peer, p.conn, nil
}

// Forget drops a client and the replies to it. Its running chains go on; waiting
// ones do not begin.
func (c *Agent) Forget(id uint64) {
	peer, known := c.ByID[id]
	if !known {
		return
	}
	delete(c.ByID, id)
	p := &c.peers[peer]
	p.live = false
	for _, j := range p.queue {
		c.conclude(j, wire.ChainNotAcquired) // sends no reply: p is not live
		c.finish(j)
	}
	p.queue = p.queue[:0]
	c.Broker.Forget(c.now, peer)
	p.gen++
	p.conn++
}

// Sent notes that a SEND completed, or was not posted.
func (c *Agent) Sent(peer int32, conn uint32) {
	if p := &c.peers[peer]; p.conn == conn {
		p.sending--
	}
}

// repeat sends the reply of an entry again.
func (c *Agent) repeat(peer, entry int32) {
	c.send(peer, entry)
	p := &c.peers[peer]
	p.entries[entry].again = p.sends
}

// repeating reports whether the device may still read an entry for a reply that was sent again.
// Sends complete in order.
func (p *agentPeer) repeating(e *agentEntry) bool { return e.again > p.sends-uint64(p.sending) }

// MaxSending is how many replies a peer may have without a completion. One
// that asks for more gets none: its client asks again.
func (l *AgentLimits) MaxSending() int { return 2*l.Window + 2 }

// ReplyAt returns the offset of an entry's reply among all.
func (c *Agent) ReplyAt(peer, entry int32) int {
	return (int(peer)*(c.Limits.Window+1) + int(entry)) * c.Limits.Message
}

func (c *Agent) reply(peer, entry int32) []byte {
	return c.replies[c.ReplyAt(peer, entry):][:c.Limits.Message:c.Limits.Message]
}

// replyStatus writes a reply that has no operations, and sends it.
func (c *Agent) replyStatus(peer, entry int32, status wire.ChainStatus, tries uint32) {
	p := &c.peers[peer]
	r := wire.ChainReply{Client: p.id, Seq: p.entries[entry].seq, Status: status, Tries: tries, Agent: p.identity}
	wire.SealMessage(r.AppendTo(c.reply(peer, entry)[:0]), 0)
	c.send(peer, entry)
}

// send adds the reply of an entry to Outs, for the first time or again.
func (c *Agent) send(peer, entry int32) {
	p := &c.peers[peer]
	if p.sending >= c.Limits.MaxSending() {
		c.Stats.Unsent++
		return
	}
	n := binary.LittleEndian.Uint32(c.reply(peer, entry)[4:])
	p.sends++
	p.sending++
	c.Outs = append(c.Outs, agentReply{peer, entry, int(n)})
}
