package dc

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lookUp is the question to a service: the answer may fail, be late, and be out
// of date when it comes.
func (i *simInitiator) lookUp(p *Peer) {
	w := i.w
	delay := func() time.Duration { return time.Duration(w.rng.Int64N(int64(20 * time.Millisecond))) }
	w.after(delay(), func() {
		a, err := Address{}, error(nil)
		t := w.services[p.addr.Service]
		if t == nil || w.rng.Float64() < w.loss {
			err = errors.New("no answer")
		} else {
			a.QPN = t.at.qpn
		}
		w.after(delay(), func() {
			if i.dead {
				return
			}
			before := p.qpn
			i.core.found(p, &a, err, w.now)
			if p.qpn != before {
				w.found++
			}
			i.settle()
		})
	})
}

// kill ends whoever has the address.
func (w *world) kill(home place) {
	t := w.alive(home)
	if t == nil {
		return
	}
	delete(w.targets, t.at.qpn)
	for s, other := range w.services {
		if other == t {
			delete(w.services, s)
		}
	}
}

func (w *world) alive(home place) *simTarget {
	for _, t := range w.targets {
		if t.home == home {
			return t
		}
	}
	return nil
}

func home(p *Peer) place { return place{qpn: p.addr.QPN, gid: p.addr.GID} }

// everywhere posts a request from each living initiator to each target.
func (w *world) everywhere(inits []*simInitiator) (jobs []*job) {
	for _, i := range inits {
		if i.dead {
			continue
		}
		for n := range i.core.peers {
			if p := i.core.peers[n]; p != nil {
				j := &job{on: i, to: p}
				jobs = append(jobs, j)
				i.post(p, j)
			}
		}
	}
	return jobs
}

// TestSearch: the service is asked after two packets without an answer, one
// question at a time, and the connect goes on at the place that it names.
func TestSearch(t *testing.T) {
	c := newInitiatorCore(1, 1, initiatorLimits{quota: 1, hold: time.Hour, retransmit: time.Millisecond, connectTimeout: time.Second}, rand.Uint32)
	p := newPeer(c.peerNumber(), Address{QPN: 7, QKey: 70, Service: 9}, 0)
	c.peers[p.number] = p
	kinds := func() (out []actionKind) {
		for _, a := range c.actions {
			out = append(out, a.kind)
		}
		c.actions = nil
		return out
	}
	now := time.Duration(0)
	tick := func() []actionKind {
		now = c.next()
		c.tick(now)
		return kinds()
	}
	c.enqueue(p, 1, now)
	psn := p.ctx.session.psn
	require.Equal(t, []actionKind{actSend}, kinds())
	require.Equal(t, []actionKind{actSend}, tick())
	require.Equal(t, []actionKind{actSend, actLookup}, tick())
	require.Equal(t, []actionKind{actSend}, tick(), "the question is under way")
	c.found(p, nil, errors.New("no answer"), now)
	require.Equal(t, []actionKind{actSend, actLookup}, tick())
	c.found(p, &Address{QPN: 7, QKey: 70}, nil, now)
	require.Empty(t, kinds(), "it is where it was")
	require.Equal(t, []actionKind{actSend, actLookup}, tick())
	c.found(p, &Address{QPN: 8, QKey: 80}, nil, now)
	require.Len(t, c.actions, 1)
	require.Equal(t, place{qpn: 8, qkey: 80}, c.actions[0].to)
	m := c.actions[0].m
	require.EqualValues(t, 2, m.attempt)
	require.NotEqual(t, psn, m.psn)
	c.received(&message{kind: msgAttached, sender: 1, attempt: 1, session: 5, from: place{qpn: 7}}, now)
	require.Equal(t, ctxConnecting, p.ctx.state, "the old place is out")
	c.received(&message{kind: msgAttached, sender: 1, attempt: 2, session: 6, epoch: 3, from: place{qpn: 8}}, now)
	require.Equal(t, ctxJoining, p.ctx.state)
	require.EqualValues(t, 3, c.stats.Lookups)
}
