package dc

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/dc/internal/session"
	"github.com/goverbs/goverbs/verbs"
)

func (s *software) place(p *Peer, n int) (place, error) {
	x := s.core.Admit(s.meet(p))
	if x == nil || len(p.a.queue) > 0 {
		return place{}, nil
	}
	q := &s.qps[x.Index]
	return place{p, &q.ring, q.ring.tail, s.core.Allow(x, n, s.i.cfg.Depth-q.ring.len())}, nil
}

func (s *software) transmit(at place, look int) (n int, looked bool, found verbs.Polled, err error) {
	x := at.peer.a.soft.Context()
	q := &s.qps[x.Index]
	if n = at.room; n > 1 || look < 0 {
		n, found, err = s.post(x, q, n, s.add(x, q, n), look)
		s.core.Stats.Hits += uint64(n)
		if err != nil {
			s.uncovered(x, q)
		}
		return n, look >= 0, found, err
	}
	// What most do: one request, and a look for its completion.
	i, pos := s.i, q.ring.tail
	e := q.ring.at(pos)
	e.silent = false
	e.add(q.batch, i.d.ID(tag(x.Index, pos)), verbs.Signaled)
	if n, found, err = i.d.PostPoll(q.batch, look); n == 0 {
		return 0, true, found, err
	}
	q.ring.tail = pos + 1
	s.core.Posted(x, 1, e.packets(q.mtu))
	s.core.Stats.Hits++
	return 1, true, found, nil // an error of the queue is told by Lost
}

// add prepares the n requests behind the ring's tail to be posted, and returns the
// number of packets that they take.
func (s *software) add(x *session.Context, q *contextQP, n int) (packets int) {
	pos := q.ring.tail
	for last := pos + uint32(n-1); ; pos++ {
		e := q.ring.at(pos)
		signaled := verbs.Signaled
		if e.silent = e.Quiet && pos != last; e.silent {
			signaled = 0
		}
		e.add(q.batch, s.i.d.ID(tag(x.Index, pos)), signaled)
		packets += e.packets(q.mtu)
		if pos == last {
			return packets
		}
	}
}

// uncovered breaks off a session with a last request that has no completion of its own,
// since the device did not take the one behind it: its end would stay unknown.
func (s *software) uncovered(x *session.Context, q *contextQP) {
	for pos := q.ring.tail; pos != q.ring.head; pos-- {
		e := q.ring.at(pos - 1)
		if e.ended {
			continue // it was not posted
		}
		if e.silent {
			s.core.Abort(x.Peer())
		}
		return
	}
}

// post posts the n requests that were added, of so many packets, and returns the
// number that the device took and, with look from 0 on, what it has found.
func (s *software) post(x *session.Context, q *contextQP, n, packets, look int) (posted int, found verbs.Polled, err error) {
	if look >= 0 {
		posted, found, err = s.i.d.PostPoll(q.batch, look)
	} else {
		posted, err = q.batch.Post()
	}
	if posted == n {
		err = nil // that of the queue, if any, is told by Lost
	} else {
		packets = 0
		for k := range posted {
			packets += q.ring.at(q.ring.tail + uint32(k)).packets(q.mtu)
		}
	}
	if posted > 0 {
		q.ring.tail += uint32(posted)
		s.core.Posted(x, posted, packets)
	}
	return posted, found, err
}

// postAll posts requests that waited. One that is refused fails alone, in turn.
func (s *software) postAll(x *session.Context, n int) {
	q := &s.qps[x.Index]
	done, err := s.postWaiting(x, q, n)
	refused := err != nil
	for ; done < n; done++ {
		if done > 0 || n > 1 {
			if _, err = s.postWaiting(x, q, 1); err == nil {
				continue
			}
		}
		e := q.ring.at(q.ring.tail)
		e.ended, e.err = true, &notPosted{opError("post to", e.peer.addr.String(), err)}
		q.ring.tail++
		s.core.Posted(x, 1, 0)
	}
	if refused {
		s.uncovered(x, q)
	}
	s.advance(x, q)
}

func (s *software) postWaiting(x *session.Context, q *contextQP, n int) (int, error) {
	posted, _, err := s.post(x, q, n, s.add(x, q, n), -1)
	return posted, err
}

// pump posts what waits for the target of an attached context.
func (s *software) pump(x *session.Context) {
	for {
		q := &s.qps[x.Index]
		n := s.core.Room(x, s.i.cfg.Depth-q.ring.len())
		if n <= 0 {
			return
		}
		p := owner(x.Peer())
		for k := range n {
			*q.ring.at(q.ring.tail + uint32(k)) = p.a.queue[k]
		}
		s.core.Took(x.Peer(), n)
		s.i.take(p, n)
		s.postAll(x, n)
	}
}

func (s *software) enqueue(p *Peer, n int) {
	m := p.a.soft
	var now time.Duration // does not matter to a peer that waits already
	if m.Context() == nil && !m.Waiting() {
		now = s.i.now()
	}
	s.core.Enqueue(m, n, now)
	if x := m.Context(); x != nil && x.Attached() {
		s.pump(x)
	}
}

func (s *software) withdrawn(p *Peer, n int) { s.core.Withdraw(p.a.soft, n, false) }

func (s *software) completed(tag uint64, wc *verbs.WC) {
	k, pos := int(tag>>tagBits), uint32(tag)
	if k >= len(s.qps) || !s.qps[k].ring.has(pos) {
		return // of a request that is over
	}
	q := &s.qps[k]
	r := &q.ring
	x := &s.core.Contexts[k]
	if wc.Status() == verbs.WCSuccess && pos == r.head && pos+1 == r.tail { // the only one
		r.head++
		s.i.finish(r.at(pos), nil)
		if s.core.Done(x, 1, false) {
			s.core.Settle(x, s.i.now())
		}
	} else {
		s.ended(q, pos, wc)
		s.advance(x, q)
	}
	if x.Attached() && x.Peer().Pending() > 0 {
		s.pump(x)
	}
}

// ended notes the completion of a request.
func (s *software) ended(q *contextQP, pos uint32, wc *verbs.WC) {
	r := &q.ring
	// Those before it that have no completion have succeeded: these are in order.
	for at := r.head; at != pos; at++ {
		r.at(at).ended = true
	}
	e := r.at(pos)
	e.ended = true
	if status := wc.Status(); status != verbs.WCSuccess {
		if status == verbs.WCRNRRetryExceeded && e.takesReceiveFirst(q.mtu) {
			q.returning = true
		}
		e.err = requestError(e, wc)
	}
}

// advance ends requests in the order of posting.
func (s *software) advance(x *session.Context, q *contextQP) {
	r := &q.ring
	for r.head != r.tail {
		e := r.at(r.head)
		if !e.ended {
			return
		}
		r.head++
		if q.returning && e.err != nil {
			s.giveBack(x, q, e)
			continue
		}
		// What was not posted does not break the queue pair.
		failed := e.err != nil && x.Peer() != nil && !errors.As(e.err, new(*notPosted))
		if failed && q.failure == nil {
			q.failure = e.err
		}
		s.i.finish(e, e.err)
		if s.core.Done(x, 1, failed) {
			s.core.Settle(x, s.i.now())
		}
	}
}

// giveBack lets a request wait again that was not carried out.
func (s *software) giveBack(x *session.Context, q *contextQP, e *entry) {
	p := e.peer
	e.ended, e.err = false, nil
	q.returned = append(q.returned, *e)
	if q.ring.len() == 0 {
		s.i.returned(p, q.returned)
		q.returned, q.returning = nil, false
	}
	s.core.NotReady(x, 1, s.i.now())
}

func (s *software) abort(p *Peer) {
	if p.a.soft != nil {
		s.core.Abort(p.a.soft)
	}
}
