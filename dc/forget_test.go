package dc

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForgottenPeer: its number is free once the target has taken leave too, and
// a session that it opens late is closed.
func TestForgottenPeer(t *testing.T) {
	at := place{qpn: 7}
	c := newInitiatorCore(1, 1, initiatorLimits{quota: 1, hold: time.Second, retransmit: time.Second, connectTimeout: time.Second}, rand.Uint32)
	p := newPeer(c.peerNumber(), Address{QPN: at.qpn}, 0)
	c.peers[p.number] = p
	c.enqueue(p, 1, 0)
	require.False(t, c.remove(p, 0))
	reply := message{kind: msgAttached, sender: 1, attempt: 1, session: 9, from: at}
	c.received(&reply, 0)
	x := p.ctx
	c.joined(x, nil, 0)
	p.pending = 0
	c.posted(x, 1, 1)
	require.False(t, c.remove(p, 0))
	c.completed(x, 1, false)

	c.actions = nil
	require.True(t, c.remove(p, 0))
	require.False(t, c.knows(p))
	require.Equal(t, []actionKind{actSend, actReset}, []actionKind{c.actions[0].kind, c.actions[1].kind})
	require.Equal(t, msgDetach, c.actions[0].m.kind)
	require.EqualValues(t, 1, c.peerNumber(), "the goodbye is under way")
	c.received(&message{kind: msgDetached, sender: 1, attempt: 1, session: 9, from: at}, 0)
	require.Empty(t, c.goodbyes)
	require.EqualValues(t, 0, c.peerNumber())

	c.actions = nil
	reply.session = 10
	c.received(&reply, 0)
	require.Len(t, c.actions, 1)
	require.Equal(t, at, c.actions[0].to)
	require.Equal(t, msgDetach, c.actions[0].m.kind)
	require.EqualValues(t, 10, c.actions[0].m.session)
}

// forget makes the initiator forget a target, and meet it anew.
func (i *simInitiator) forget(at place) {
	p := i.known[at]
	if i.dead || !i.core.remove(p, i.w.now) {
		return
	}
	if len(i.queues[p]) > 0 {
		i.w.wrong("a peer with requests was forgotten")
	}
	delete(i.queues, p)
	i.resolve(p.addr, p.key)
	i.settle()
}
