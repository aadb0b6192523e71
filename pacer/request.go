package pacer

import (
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// work is a request as the program gave it.
type work struct {
	verbs.WR
	class   int
	length  int
	binding verbs.WindowBinding // for Bind
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

const noSub = shaper.Sub(1<<64 - 1)

// request is the driver's part of a command under way.
type request struct {
	work
	qp     *QP
	place  int      // in the order of its queue pair
	wc     verbs.WC // of what failed first, or completed last
	had    bool     // there was one
	failed bool
	call   *call // that waits for it

	sub   shaper.Sub    // granted at once, or of an acquisition
	token chan struct{} // of an acquisition
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
