package pacer

import (
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// submit makes a command of a request. If it may go at once, it is added to the batch that is
// posted next, and the caller must call flush.
func (q *QP) submit(w *work, c *call, now time.Duration) (shaper.Request, error) {
	p := q.p
	at, sub, granted, err := p.s.Admit(q.flow, shaper.Command{Kind: w.kind(), Length: w.length, Class: w.class, Fence: w.Flags&verbs.Fence != 0}, now)
	if err != nil {
		return at, err
	}
	r := p.request(at)
	if granted && !q.cfg.Reissue { // it is posted once, and from w
		r.ID, r.Op, r.length = w.ID, w.Op, w.length
	} else {
		r.copyFrom(w)
		if !granted {
			r.keep()
		}
	}
	r.qp, r.call, r.sub, r.had, r.failed = q, c, sub, false, false
	r.place = q.enter(at, c != nil || w.Flags&verbs.Signaled != 0 || q.signalsAll)
	if granted {
		q.add(sub, w, w.Flags, 0, w.length)
	}
	return at, nil
}

// granted adds a request packet that was held to the batch that is posted next.
func (q *QP) granted(g shaper.Grant) {
	w := &q.p.requests[g.Request].work
	flags := w.Flags
	if !g.First && !g.Again {
		flags &^= verbs.Fence // the first piece waited
	}
	q.add(g.Sub, w, flags, g.Offset, g.Length)
}

// add adds a request packet to the batch that is posted next. All are signaled: credit comes
// back with each.
func (q *QP) add(sub shaper.Sub, w *work, flags verbs.SendFlags, offset, n int) {
	alone := w.Op == verbs.WRBindWindow // it fails when it is added if its window was closed since
	if len(q.adding) == cap(q.adding) || alone {
		q.flush()
	}
	q.adding = append(q.adding, sub)
	w.add(q.batch, q.cq.d.ID(uint64(sub)), flags|verbs.Signaled, offset, n, q.scratch)
	if alone {
		q.flush()
	}
}

// flush posts the batch. Requests that are not posted give their credit back.
func (q *QP) flush() {
	if len(q.adding) > 0 {
		q.flushed(q.batch.Post())
	}
}

// flushAndLook is flush that looks for completions in the same crossing. What it has found must be
// dispatched without the pacer's lock.
func (q *QP) flushAndLook() (found verbs.Polled) {
	if len(q.adding) > 0 {
		var n int
		var err error
		n, found, err = q.cq.d.PostPoll(q.batch, 0)
		q.flushed(n, err)
	}
	return found
}

// flushed follows a post that took n requests of the batch.
func (q *QP) flushed(n int, err error) {
	if err != nil {
		for _, sub := range q.adding[n:] {
			q.fail(sub, nil)
		}
	}
	q.adding = q.adding[:0]
}

// fail handles the failure of a request packet. wc is its completion, or nil if there will be
// none.
func (q *QP) fail(sub shaper.Sub, wc *verbs.WC) {
	p := q.p
	at, ok := p.s.RequestOf(sub)
	if !ok {
		return
	}
	r := &p.requests[at]
	if q.cfg.Reissue && !q.closed {
		q.down = true
		p.s.Down(q.flow)
	}
	again := q.down && q.cfg.Reissue && r.Op == verbs.WRRead && !q.closed && lostOnly(wc)
	if !again && !r.failed {
		r.failed, r.had = true, wc != nil
		if wc != nil {
			r.wc = *wc
		}
	}
	p.s.Failed(sub, again)
}

// lostOnly reports whether a failed request may succeed on another connection: the request
// itself was not wrong. Without a completion it was not posted.
func lostOnly(wc *verbs.WC) bool {
	if wc == nil {
		return true
	}
	switch wc.Status() {
	case verbs.WCFlushed, verbs.WCRetryExceeded, verbs.WCRNRRetryExceeded, verbs.WCRemoteAborted, verbs.WCResponseTimeout:
		return true
	}
	return false
}

func (w *work) kind() shaper.Kind {
	switch w.Op {
	case verbs.WRRead:
		return shaper.Get
	case verbs.WRFetchAdd, verbs.WRCmpSwap, verbs.WRMaskedFetchAdd, verbs.WRMaskedCmpSwap:
		return shaper.Atomic
	}
	return shaper.Put
}

// length returns how many bytes a request moves.
func length(r *verbs.WR) int {
	n := len(r.Data)
	for i := range r.Local {
		n += int(r.Local[i].Length)
	}
	return n
}

// set copies r, and its lists into memory of w. It copies field by field, so that the lists of r
// may be on a stack.
func (w *work) set(r *verbs.WR) {
	w.ID, w.Op, w.Flags, w.Imm, w.Remote = r.ID, r.Op, r.Flags, r.Imm, r.Remote
	w.Value, w.Compare, w.Mask, w.CompareMask = r.Value, r.Compare, r.Mask, r.CompareMask
	w.Local, w.Data = append(w.Local[:0], r.Local...), append(w.Data[:0], r.Data...)
	if w.Bind = nil; r.Bind != nil {
		w.binding = *r.Bind
		w.Bind = &w.binding
	}
}

func (w *work) copyFrom(o *work) {
	w.set(&o.WR)
	w.class, w.length = o.class, o.length
}

// keep prepares a request to be posted later: it copies inline data, which is sent as it is now.
func (w *work) keep() {
	if w.Flags&verbs.Inline != 0 && len(w.Data) == 0 && w.kind() == shaper.Put {
		w.Data, w.Local = driver.Gather(w.Data, w.Local...), w.Local[:0]
	}
	w.Flags &^= verbs.Inline
}

// add adds the request to a batch: all of it, or a piece of a READ.
func (w *work) add(b *verbs.Batch, id uint64, flags verbs.SendFlags, offset, n int, scratch []verbs.SGE) {
	if w.Op == verbs.WRRead && n == w.length {
		b.Read(id, flags, w.Remote, w.Local...)
		return
	}
	r := w.WR
	r.ID, r.Flags = id, flags
	if r.Op == verbs.WRRead {
		r.Remote.Addr += uint64(offset)
		r.Local = piece(scratch[:0], w.Local, offset, n)
	}
	b.Add(r)
}

// piece appends the range of n bytes at offset of scattered memory to out.
func piece(out, sges []verbs.SGE, offset, n int) []verbs.SGE {
	for _, s := range sges {
		if n == 0 {
			break
		}
		size := int(s.Length)
		if offset >= size {
			offset -= size
			continue
		}
		take := min(size-offset, n)
		out = append(out, verbs.SGE{Addr: s.Addr + uint64(offset), Length: uint32(take), LKey: s.LKey})
		offset, n = 0, n-take
	}
	return out
}

// admitted grants an acquisition.
func (r *request) admitted(sub shaper.Sub) {
	r.sub = sub
	if r.token != nil {
		select {
		case r.token <- struct{}{}:
		default:
		}
	}
}
