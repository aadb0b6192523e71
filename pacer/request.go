package pacer

import (
	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

type op uint8

const (
	opRead op = iota
	opFetchAdd
	opCmpSwap
	opWrite
	opWriteImm
	opWriteInline
	opWriteImmInline
	opSend
	opSendImm
	opSendInline
	opSendImmInline
	opOther
)

func (o op) kind() shaper.Kind {
	switch o {
	case opRead:
		return shaper.Get
	case opFetchAdd, opCmpSwap:
		return shaper.Atomic
	}
	return shaper.Put
}

// work is a request as the program gave it.
type work struct {
	id     uint64
	op     op
	flags  verbs.SendFlags
	class  int
	at     verbs.Remote
	a, b   uint64 // immediate; what to add; what to compare and swap
	sges   []verbs.SGE
	data   []byte // inline
	length int
	other  func(b *verbs.Batch, id uint64, flags verbs.SendFlags)
}

// copyFrom copies o, and its lists into memory of w.
func (w *work) copyFrom(o *work) {
	sges, data := append(w.sges[:0], o.sges...), append(w.data[:0], o.data...)
	*w = *o
	w.sges, w.data = sges, data
}

// keep prepares a request to be posted later: it copies inline data, which is sent as it is now.
func (w *work) keep() {
	if w.flags&verbs.Inline == 0 {
		return
	}
	switch w.op {
	case opWrite:
		w.op = opWriteInline
	case opWriteImm:
		w.op = opWriteImmInline
	case opSend:
		w.op = opSendInline
	case opSendImm:
		w.op = opSendImmInline
	default: // it has been copied, or is the program's part to add
		return
	}
	w.data, w.sges = verbs.Gather(w.data[:0], w.sges...), w.sges[:0]
	w.flags &^= verbs.Inline
}

// add adds the request to a batch: all of it, or a piece of a READ.
func (w *work) add(b *verbs.Batch, id uint64, flags verbs.SendFlags, offset, n int, scratch []verbs.SGE) {
	switch w.op {
	case opRead:
		from := w.at
		from.Addr += uint64(offset)
		if n == w.length {
			b.Read(id, flags, from, w.sges...)
			return
		}
		b.Read(id, flags, from, piece(scratch[:0], w.sges, offset, n)...)
	case opFetchAdd:
		b.FetchAdd(id, flags, w.at, w.a, w.sges[0])
	case opCmpSwap:
		b.CmpSwap(id, flags, w.at, w.a, w.b, w.sges[0])
	case opWrite:
		b.Write(id, flags, w.at, w.sges...)
	case opWriteImm:
		b.WriteImm(id, flags, uint32(w.a), w.at, w.sges...)
	case opWriteInline:
		b.WriteInline(id, flags, w.at, w.data)
	case opWriteImmInline:
		b.WriteImmInline(id, flags, uint32(w.a), w.at, w.data)
	case opSend:
		b.Send(id, flags, w.sges...)
	case opSendImm:
		b.SendImm(id, flags, uint32(w.a), w.sges...)
	case opSendInline:
		b.SendInline(id, flags, w.data)
	case opSendImmInline:
		b.SendImmInline(id, flags, uint32(w.a), w.data)
	case opOther:
		w.other(b, id, flags)
	}
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

	// Of an acquisition.
	sub   shaper.Sub
	token chan struct{}
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
