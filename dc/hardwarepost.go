package dc

import (
	"github.com/goverbs/goverbs/verbs"
)

func (h *hardware) place(p *Peer, n int) (place, error) {
	if err := h.ready(p); err != nil || len(p.a.queue) > 0 {
		return place{}, err
	}
	m := &p.a.hard.m
	if !h.core.Place(m) {
		return place{}, nil
	}
	if n = h.core.Admit(m, n); n == 0 {
		h.core.Settle(m)
		return place{}, nil
	}
	d := m.DCI()
	return place{p, &h.dcis[d.Index].ring, d.Position(0), n}, nil
}

func (h *hardware) transmit(at place, look int) (posted int, looked bool, found verbs.Polled, err error) {
	x := at.peer.a.hard
	if found, err = h.postAll(x, at.room, look); err != nil {
		h.core.Settle(&x.m)
		return 0, look >= 0, found, err
	}
	h.hits += uint64(at.room)
	return at.room, look >= 0, found, nil
}

// post posts n requests that waited. One that is refused fails alone.
func (h *hardware) post(x *hardPeer, n int) {
	if _, err := h.postAll(x, n, -1); err == nil {
		return
	}
	d := x.m.DCI()
	r := &h.dcis[d.Index].ring
	for ; n > 0; n-- {
		if _, err := h.postAll(x, 1, -1); err != nil {
			e := r.at(d.Position(0))
			h.i.finish(e, opError("post to", e.peer.addr.String(), err))
			for k := range n - 1 {
				*r.at(d.Position(k)) = *r.at(d.Position(k + 1))
			}
		}
	}
	h.core.Settle(&x.m)
}

// postAll posts n requests, or none and returns an error. look is as for transmit.
func (h *hardware) postAll(x *hardPeer, n, look int) (found verbs.Polled, err error) {
	d := x.m.DCI()
	q := &h.dcis[d.Index]
	to := x.to
	if d.Streams() > 1 {
		to.Stream = 1 + x.m.Stream()
	}
	q.batch.SetTarget(to)
	before := int32(0)
	for k := range n {
		e, signaled := q.ring.at(d.Position(k)), verbs.Signaled
		e.before = before
		if before++; k+1 < n && before < h.perCompletion && e.call != nil && e.call == q.ring.at(d.Position(k+1)).call {
			signaled = 0 // the caller waits for all of them, and they are over in order
		} else {
			before = 0
		}
		e.add(q.batch, h.i.d.ID(d.Number(k)), signaled)
	}
	posted := 0
	if look >= 0 {
		posted, found, err = h.i.d.PostPoll(q.batch, look)
	} else {
		posted, err = q.batch.Post()
	}
	if posted == 0 {
		return found, err
	}
	for range n {
		h.core.Posted(&x.m)
	}
	return found, nil // an error of the queue is told by Lost
}

func (h *hardware) enqueue(p *Peer, n int) {
	m := &p.a.hard.m
	if !h.core.Place(m) {
		h.i.failQueue(p, opError("post to", p.addr.String(), h.core.Lost()))
		return
	}
	h.core.Enqueue(m, n)
}

func (h *hardware) withdrawn(p *Peer, n int) { h.core.Withdraw(&p.a.hard.m, n) }

// pump posts what waits and now finds room.
func (h *hardware) pump() {
	for k := range h.core.DCIs {
		d := &h.core.DCIs[k]
		for {
			m, n := h.core.Turn(d)
			if m == nil {
				break
			}
			x := m.Owner.(*hardPeer)
			q := &h.dcis[d.Index]
			for k := range n {
				*q.ring.at(d.Position(k)) = x.owner.a.queue[k]
			}
			h.i.take(x.owner, n)
			h.post(x, n)
		}
	}
}

func (h *hardware) completed(number uint64, wc *verbs.WC) {
	if !h.core.Has(number) {
		return
	}
	r, at := &h.dcis[number>>tagBits].ring, uint32(number)
	for k := uint32(r.at(at).before); k > 0; k-- { // which have succeeded, or have failed before
		if _, ok := h.core.Completed(tag(int(number>>tagBits), at-k), false); ok {
			h.i.finish(r.at(at-k), nil)
		}
	}
	failed := wc.Status() != verbs.WCSuccess
	h.core.Completed(number, failed)
	e := r.at(at)
	var err error
	if failed {
		err = requestError(e, wc)
		if x := e.peer.a.hard; wc.Status() == verbs.WCRetryExceeded && x.route != nil {
			h.routes.doubt(x.route) // the neighbour may have another link-layer address
		}
	}
	h.i.finish(e, err)
	h.urgent()
}

func (h *hardware) abort(p *Peer) {
	if p.a.hard != nil {
		h.core.Abort(&p.a.hard.m)
	}
}
